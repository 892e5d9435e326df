"""``crons``: list, run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .answers import cli_errors
from .display import as_json, moment, table
from .operator import app_option, operator_of, operator_options, place_of, place_options

if TYPE_CHECKING:
    from sa_outbox.operations.crons import CronOverview


@click.group()
def crons() -> None:
    """Show when recurring events are due, or add one now."""


@crons.command("list")
@app_option("Without, only names and last ticks are known.")
@click.option("--json", "as_json_", is_flag=True, help="One JSON list, for programs.")
@place_options
def list_(*, app: str | None, as_json_: bool, **options: Any) -> None:
    """List the crons: expression, time zone, next ticks, last tick, event.

    late: its next tick passed more than a minute ago, so no consumer adds its events. not started:
    no consumer has registered it.
    """
    from sa_outbox.declare.recurring import Crons  # noqa: PLC0415 - not for --help
    from sa_outbox.operations.crons import list_crons  # noqa: PLC0415 - not for --help

    place = place_of(options)
    declared = Crons()
    if app is not None:
        from sa_outbox.consume.loader import load_outbox  # noqa: PLC0415 - the user's program

        with cli_errors():
            declared = load_outbox(app).crons
    found = place.ask(lambda c, tables: list_crons(c, tables, declared))
    if as_json_:
        click.echo(as_json(found))
        return
    headers = ("CRON", "STATE", "EXPRESSION", "TIME ZONE", "NEXT TICK", "LAST TICK", "TYPE")
    rows = [
        [
            each.name,
            _state(each),
            each.expression or "-",
            each.time_zone or "-",
            moment(each.next_ticks[0] if each.next_ticks else None),
            moment(each.last_tick),
            each.event_type or "-",
        ]
        for each in found
    ]
    click.echo(table(headers, rows) if rows else "there is no cron")


def _state(each: CronOverview) -> str:
    if each.changed_at is None:
        return "not started"
    if each.expression is None:
        return "not declared"
    return "late" if each.is_late else "fine"


@crons.command()
@click.argument("name")
@app_option("It declares the cron.")
@place_options
@operator_options
def run(*, name: str, app: str | None, **options: Any) -> None:
    """Add the event of the cron NAME now, once more. The schedule stays as it is.

    The program has to be known: --app, or SA_OUTBOX_APP.
    """
    from sa_outbox.operations.crons import run_cron  # noqa: PLC0415 - not for --help

    place, operator = place_of(options), operator_of(options)
    if app is None:
        raise click.UsageError("which program declares it? --app, or SA_OUTBOX_APP")
    with cli_errors():
        from sa_outbox.consume.loader import load_outbox  # noqa: PLC0415 - the user's program

        outbox = load_outbox(app)
    records_added = outbox.settings.audit == "all"
    event_id = place.ask(
        lambda c, tables: run_cron(
            c, tables, outbox.crons, name, operator, records_added=records_added
        )
    )
    click.echo(f"cron {name}: added event {event_id}")
