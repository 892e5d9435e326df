"""``events``: list and show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .answers import told_in_one_line
from .display import as_json, document, escaped, facts, moment, table
from .operating import moment_option, parse_event, place_of, place_options

if TYPE_CHECKING:
    from datetime import datetime

    from sa_outbox.operations.events import EventDetail


@click.group()
def events() -> None:
    """Find events in the log, and the path of one through every listener."""


@events.command("list")
@click.option("--type", "types", multiple=True, help="Event type; * for any run of characters.")
@click.option("--key")
@click.option("--tenant")
@moment_option("--since", "Written then or later")
@moment_option("--until", "Written before")
@click.option("--from-id", type=int, help="This id or a higher one.")
@click.option("--to-id", type=int, help="This id or a lower one.")
@click.option("--before", type=int, help="Go on below this id: the end of the last page.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--json", "as_json_", is_flag=True, help="One JSON object, for programs.")
@place_options
def list_(
    *,
    types: tuple[str, ...],
    key: str | None,
    tenant: str | None,
    since: datetime | None,
    until: datetime | None,
    from_id: int | None,
    to_id: int | None,
    before: int | None,
    limit: int,
    as_json_: bool,
    **options: Any,
) -> None:
    """List events, the newest first, without their payload."""
    from sa_outbox.operations.events import EventFilter, list_events  # noqa: PLC0415 - not for its help

    wanted = EventFilter(
        types=types, key=key, tenant=tenant, since=since, until=until, first_id=from_id,
        last_id=to_id,
    )  # fmt: skip
    place = place_of(options)
    page = place.ask(lambda c, tables: list_events(c, tables, wanted, before=before, limit=limit))
    if as_json_:
        click.echo(as_json(page))
        return
    rows = [
        [
            each.id,
            moment(each.created_at),
            each.event_type,
            each.key,
            each.tenant,
            each.priority,
            str(each.event_id),
        ]
        for each in page.events
    ]
    headers = ("ID", "WRITTEN", "TYPE", "KEY", "TENANT", "PRIORITY", "EVENT ID")
    click.echo(table(headers, rows) if rows else "no event")
    if page.next_before is not None:
        click.echo(f"there may be more: --before {page.next_before}", err=True)


@events.command()
@click.argument("event", type=parse_event)
@click.option("--mask", "masks", multiple=True, metavar="FIELD", help="Cover this field.")
@click.option(
    "--app",
    metavar="MODULE:OUTBOX",
    help="The program's outbox, as for consume: it says which listeners want the event.",
)
@click.option("--json", "as_json_", is_flag=True, help="One JSON object, for programs.")
@place_options
def show(
    *,
    event: dict[str, Any],
    masks: tuple[str, ...],
    app: str | None,
    as_json_: bool,
    **options: Any,
) -> None:
    """Show EVENT (its id, or its event_id) with payload, and what became of it."""
    from sa_outbox.operations.events import show_event  # noqa: PLC0415 - as above

    place = place_of(options)
    listeners = None
    if app is not None:
        from sa_outbox.loading import load_outbox  # noqa: PLC0415 - the user's program

        with told_in_one_line():
            listeners = load_outbox(app).listeners
    found = place.ask(lambda c, tables: show_event(c, tables, **event, listeners=listeners))
    if as_json_:
        click.echo(as_json({**_named(found), "payload": document(found.payload, masks)}))
        return
    click.echo(_rendered(found, masks))


def _named(found: EventDetail) -> dict[str, Any]:
    return {name: getattr(found, name) for name in found.__slots__}


def _rendered(found: EventDetail, masks: tuple[str, ...]) -> str:
    summary = found.summary
    told: dict[str, object] = {
        "event_id": found.event_id,
        "id": "gone from the log" if found.position is None else found.position,
        "type": found.event_type,
        "written": moment(found.created_at),
    }
    if summary is not None:
        told |= {"key": summary.key, "tenant": summary.tenant, "run at": moment(summary.run_at)}
    if found.dead_letters:
        told["dead letters"] = ", ".join(map(str, found.dead_letters))
    rows = [
        [
            name,
            each.state,
            each.attempts,
            moment(each.due_at),
            each.last_error_code or "-",
            each.last_error or each.cancel_reason or each.result_ref or "-",
        ]
        for name, each in found.listeners.items()
    ]
    headers = ("LISTENER", "STATE", "ATTEMPTS", "DUE", "CODE", "ERROR OR RESULT")
    return "\n".join(
        [
            facts(told),
            "",
            table(headers, rows) if rows else "no listener has to do with it",
            "",
            f"headers: {escaped(document(found.headers, masks), lines=True)}",
            f"payload: {escaped(document(found.payload, masks), lines=True)}",
        ]
    )
