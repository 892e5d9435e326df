"""``events``: list, show and erase."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .answers import cli_errors, counted
from .display import as_json, document, escaped, facts, moment, table
from .operator import (
    app_option,
    confirm,
    hint_types,
    limit_option,
    moment_option,
    operator_of,
    operator_options,
    parse_event,
    place_of,
    place_options,
    yes_option,
)

if TYPE_CHECKING:
    from datetime import datetime

    from sa_outbox.operations.causation import Causation, CausedEvent
    from sa_outbox.operations.erasure import Erased
    from sa_outbox.operations.events import EventDetail


@click.group()
def events() -> None:
    """Find events in the log, trace one, or erase it."""


@events.command("list")
@click.option("--type", "types", multiple=True, help="Event type; * for any run of characters.")
@click.option("--key", help="Only events with this key.")
@click.option("--tenant", help="Only events of this tenant.")
@moment_option("--since", "Written then or later")
@moment_option("--until", "Written before")
@click.option("--from-id", type=int, help="This id or a higher one.")
@click.option("--to-id", type=int, help="This id or a lower one.")
@click.option("--before", type=int, help="Continue below this id: the end of the last page.")
@limit_option
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
    """List events, newest first, without their payload."""
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
    if not rows and types:
        hint_types(place, types)
    if page.next_before is not None:
        click.echo(f"there may be more: --before {page.next_before}", err=True)


@events.command()
@click.argument("event", type=parse_event)
@click.option(
    "--mask", "masks", multiple=True, metavar="FIELD", help="Mask this field. Repeatable."
)
@click.option("--tree", is_flag=True, help="Show what caused it and what it caused instead.")
@app_option("Without, the listeners are those that consumers have registered.")
@click.option("--json", "as_json_", is_flag=True, help="One JSON object, for programs.")
@place_options
def show(
    *,
    event: dict[str, Any],
    masks: tuple[str, ...],
    tree: bool,
    app: str | None,
    as_json_: bool,
    **options: Any,
) -> None:
    """Show EVENT with its payload and its outcome for each listener.

    EVENT is its id or its event_id.
    """
    from sa_outbox.operations.causation import causation_of  # noqa: PLC0415 - not for --help
    from sa_outbox.operations.events import show_event  # noqa: PLC0415 - not for --help

    place = place_of(options)
    listeners = None
    if app is not None:
        from sa_outbox.consume.loader import load_outbox  # noqa: PLC0415 - the user's program

        with cli_errors():
            listeners = load_outbox(app).listeners
    found = place.ask(lambda c, tables: show_event(c, tables, **event, listeners=listeners))
    if tree:
        caused = place.ask(
            lambda c, tables: causation_of(c, tables, found.event_id, listeners=listeners)
        )
        click.echo(as_json(caused) if as_json_ else _drawn(caused))
        return
    if as_json_:
        click.echo(as_json({**_named(found), "payload": document(found.payload, masks)}))
        return
    click.echo(_rendered(found, masks))


@events.command()
@click.argument("chosen", metavar="EVENT...", nargs=-1, required=True, type=parse_event)
@click.option(
    "--keys",
    is_flag=True,
    help="Erase its idempotency keys too: then it can be added again.",
)
@click.option("--dry-run", is_flag=True, help="Only print what would be erased.")
@place_options
@operator_options
@yes_option
def erase(
    *, chosen: tuple[dict[str, Any], ...], keys: bool, dry_run: bool, yes: bool, **options: Any
) -> None:
    """Erase each EVENT, for personal data that has to go.

    EVENT is its id or its event_id. It is erased from the log, with its deliveries, dead letters
    and results. Listeners that have not handled it never get it. The audit keeps that it was
    erased, by whom and why, and nothing of its content.
    """
    from sa_outbox.operations.erasure import erase_event  # noqa: PLC0415 - not for --help

    place, operator = place_of(options), operator_of(options)

    def ask(event: dict[str, Any], *, dry: bool) -> Erased:
        return place.ask(
            lambda c, tables: erase_event(c, tables, operator, **event, keys=keys, dry_run=dry)
        )

    foreseen = [ask(each, dry=True) for each in chosen]
    if dry_run:
        for each in foreseen:
            click.echo(f"would erase {_copies(each, keys=keys)}")
        return
    what = "\n".join(f"erases {_copies(each, keys=keys)}" for each in foreseen)
    confirm(place, f"{what}\nThis can't be undone.", "erase", yes=yes)
    for event in chosen:
        click.echo(f"erased {_copies(ask(event, dry=False), keys=keys)}")


def _copies(erased: Erased, *, keys: bool) -> str:
    counts = {
        "delivery": erased.deliveries,
        "dead letter": erased.dead_letters,
        "result": erased.results,
        "idempotency key": erased.keys if keys else 0,
    }
    copies = ", ".join(counted(count, name) for name, count in counts.items() if count)
    message = f"event {erased.position} ({escaped(erased.event_type)}, {erased.event_id})"
    message += f" with {copies}" if copies else ""
    if erased.unhandled:
        message += f"; not handled yet, and never will be, by {', '.join(erased.unhandled)}"
    if erased.keys and not keys:
        message += f"; kept until expiry: {counted(erased.keys, 'idempotency key')} (--keys)"
    return message


def _drawn(found: Causation) -> str:
    """Its causes above it, what it caused below, each further to the right."""
    lines = []
    if found.lost_cause is not None:
        lines.append(f"({found.lost_cause}, no longer in the log)")
    for each in found.causes:
        lines.append(_line(each, len(lines)))
    lines += _branch(found.event, len(lines), mark=" <--")
    return "\n".join([*lines, "there is more"] if found.is_cut else lines)


def _branch(event: CausedEvent, depth: int, mark: str = "") -> list[str]:
    below = [line for each in event.caused for line in _branch(each, depth + 1)]
    return [_line(event, depth) + mark, *below]


def _line(event: CausedEvent, depth: int) -> str:
    said = f"{escaped(event.event_type)} {event.position}  {event.state}"
    return f"{'  ' * depth}{said}  {moment(event.created_at)}"


def _named(found: EventDetail) -> dict[str, Any]:
    return {name: getattr(found, name) for name in found.__slots__}


def _rendered(found: EventDetail, masks: tuple[str, ...]) -> str:
    summary = found.summary
    shown: dict[str, object] = {
        "event_id": found.event_id,
        "id": "gone from the log" if found.position is None else found.position,
        "type": found.event_type,
        "written": moment(found.created_at),
    }
    if summary is not None:
        shown |= {"key": summary.key, "tenant": summary.tenant, "run at": moment(summary.run_at)}
    if found.dead_letters:
        shown["dead letters"] = ", ".join(map(str, found.dead_letters))
    rows = [
        [
            name,
            each.state,
            # A success leaves no row that counts them: 0 would look like "never attempted".
            "-" if each.state == "succeeded" and not each.attempts else each.attempts,
            moment(each.due_at or each.finished_at),
            each.last_error_code or "-",
            each.last_error or each.cancel_reason or each.result_ref or "-",
        ]
        for name, each in found.listeners.items()
    ]
    headers = ("LISTENER", "STATE", "ATTEMPTS", "DUE OR FINISHED", "CODE", "ERROR OR RESULT")
    return "\n".join(
        [
            facts(shown),
            "",
            table(headers, rows) if rows else "no listener wants it",
            "",
            f"headers: {escaped(document(found.headers, masks), lines=True)}",
            f"payload: {escaped(document(found.payload, masks), lines=True)}",
        ]
    )
