"""``deliveries``: list, retry, cancel."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from .answers import NearChoice, cli_errors, counted
from .display import as_json, escaped, holder, moment, table
from .operator import (
    app_option,
    confirm,
    hint_types,
    limit_option,
    operator_of,
    operator_options,
    place_of,
    place_options,
    yes_option,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypeVar

    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables
    from sa_outbox.operations.deliveries import DeliveryFilter, DeliveryId
    from sa_outbox.operations.delivery_change import Outcome

    from .operator import Place

    F = TypeVar("F", bound=Callable[..., None])

STATES = ("running", "parked", "scheduled", "behind", "cancelled")


def filter_options(command: F) -> F:
    for option in (
        click.option("--key", help="Only of events with this key."),
        click.option("--tenant", help="Only of events of this tenant."),
        click.option("--type", "event_type", help="Only of events of this type."),
        click.option("--state", type=NearChoice(STATES), help="Only those in this state."),
        click.option("--listener", help="Only those of this listener."),
    ):
        command = option(command)
    return command


@click.group()
def deliveries() -> None:
    """List, retry and cancel deliveries that wait or run.

    A delivery has a row once it waits: for a retry, for its time, or for an earlier event of its
    key. It is named POSITION:LISTENER, as in 120481:mail.
    """


@deliveries.command("list")
@filter_options
@click.option("--after", metavar="DELIVERY", help="Continue after this one: the last page's end.")
@limit_option
@click.option("--json", "as_json_", is_flag=True, help="One JSON object, for programs.")
@place_options
def list_(*, after: str | None, limit: int, as_json_: bool, **options: Any) -> None:
    """List deliveries that have a row, by listener and position.

    running: a process of a queue has claimed it. parked: it failed, and is retried at its time.
    scheduled: not before its time; in a queue also a retry. behind: an earlier event of its key is
    parked. What listeners with order="total" wait for: sa-outbox listeners list.
    """
    from sa_outbox.operations.deliveries import list_deliveries  # noqa: PLC0415 - not for --help

    wanted = _filter(options)
    with cli_errors():
        begin = None if after is None else _id(after)
    place = place_of(options)
    page = place.ask(lambda c, tables: list_deliveries(c, tables, wanted, after=begin, limit=limit))
    if not page.deliveries:
        _require_known(place, wanted)
    if as_json_:
        click.echo(as_json(page))
        return
    headers = (
        "DELIVERY", "STATE", "DUE", "FAILED", "TYPE", "KEY", "TENANT", "HELD BY", "CODE", "ERROR",
    )  # fmt: skip
    rows = [
        [
            str(each.id),
            each.state,
            moment(each.due_at),
            each.attempts,
            each.event_type,
            each.key,
            each.tenant,
            holder(each.owner),
            each.last_error_code or "-",
            each.last_error or each.cancel_reason or "-",
        ]
        for each in page.deliveries
    ]
    click.echo(table(headers, rows) if rows else "no delivery")
    if page.next_after is not None:
        click.echo(f"there may be more: --after {escaped(page.next_after)}", err=True)


@deliveries.command()
@click.argument("chosen", metavar="DELIVERY...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All that failed and match.")
@filter_options
@place_options
@operator_options
def retry(*, chosen: tuple[str, ...], every: bool, **options: Any) -> None:
    """Retry each DELIVERY now: its time has come. The order of its key is kept.

    With --all: every delivery that waits for a retry and matches, never one that waits for its
    run_at.
    """
    from sa_outbox.operations.delivery_change import retry_deliveries  # noqa: PLC0415 - not for --help

    wanted, operator = _filter(options), operator_of(options)
    place = place_of(options)
    if every == bool(chosen):
        raise click.UsageError("name deliveries, or use --all")
    if every:
        _retry_all(place, wanted, operator)
        return
    with cli_errors():
        ids = [_id(each) for each in chosen]
    _require_listeners(place, [each.listener for each in ids])
    _print(place.ask(lambda c, tables: retry_deliveries(c, tables, ids, operator)))


@deliveries.command()
@click.argument("chosen", metavar="DELIVERY...", nargs=-1, required=True)
@app_option("Without, the tables tell which listeners are queues.")
@place_options
@operator_options
@yes_option
def cancel(*, chosen: tuple[str, ...], app: str | None, yes: bool, **options: Any) -> None:
    """Have each DELIVERY never attempted again, by its listener alone.

    In a listener that keeps an order it is skipped, unless it is scheduled, and the events behind
    it go on. A handler that runs is asked to stop.
    """
    from sa_outbox.operations.delivery_change import cancel_deliveries  # noqa: PLC0415 - not for --help

    place, operator = place_of(options), operator_of(options)
    listeners = None
    with cli_errors():
        ids = [_id(each) for each in chosen]
        if app is not None:
            from sa_outbox.consume.loader import load_outbox  # noqa: PLC0415 - the user's program

            listeners = load_outbox(app).listeners
    _require_listeners(place, [each.listener for each in ids])
    confirm(place, f"{counted(len(ids), 'delivery')}: never attempted again.", "cancel", yes=yes)
    _print(
        place.ask(
            lambda c, tables: cancel_deliveries(c, tables, ids, operator, listeners=listeners)
        )
    )


def _require_known(place: Place, wanted: DeliveryFilter) -> None:
    """Nothing was found: refuse a listener that nobody knows; for a type print the near one."""
    if wanted.listener is not None:
        _require_listeners(place, [wanted.listener])
    if wanted.event_type is not None:
        hint_types(place, [wanted.event_type])


def _require_listeners(place: Place, names: Iterable[str]) -> None:
    """A typo must not look like a delivery that is done: refuse a listener that nobody knows."""
    from sa_outbox.operations.known_names import check_listener  # noqa: PLC0415 - not for --help

    def ask(connection: Connection, tables: Tables) -> None:
        for name in sorted({*names}):
            check_listener(connection, tables, name)

    place.ask(ask)


def _retry_all(place: Place, wanted: DeliveryFilter, operator: Any) -> None:
    """Batch by batch, each in its own transaction."""
    from collections import Counter  # noqa: PLC0415 - rarely

    from sa_outbox.operations.delivery_change import OUTCOMES, retry_matching  # noqa: PLC0415

    counts: Counter[Outcome] = Counter()
    after: DeliveryId | None = None
    while True:
        done = place.ask(partial(retry_matching, wanted=wanted, operator=operator, after=after))
        counts.update(done.outcomes.values())
        after = done.next_after
        if after is None:
            break
    for outcome, number in counts.items():
        click.echo(f"{counted(number, 'delivery')}: {OUTCOMES[outcome]}")
    if not counts:
        _require_known(place, wanted)
        click.echo("no delivery waits for a retry")


def _print(outcomes: Mapping[DeliveryId, Outcome]) -> None:
    """One line each; exit code 1 if some were left unchanged."""
    from sa_outbox.operations.delivery_change import CHANGED, OUTCOMES  # noqa: PLC0415

    for one, outcome in outcomes.items():
        click.echo(f"{escaped(one)}: {OUTCOMES[outcome]}")
    if any(each not in CHANGED for each in outcomes.values()):
        raise SystemExit(1)


def _filter(options: dict[str, Any]) -> DeliveryFilter:
    from sa_outbox.operations.deliveries import DeliveryFilter  # noqa: PLC0415 - not for --help

    names = ("listener", "state", "event_type", "tenant", "key")
    return DeliveryFilter(**{name: options.pop(name) for name in names})


def _id(text: str) -> DeliveryId:
    from sa_outbox.operations.deliveries import DeliveryId  # noqa: PLC0415 - not for --help

    return DeliveryId.parse(text)
