"""``dead-letters``: list and show."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from sa_outbox.policy.delivery import Reason

from .display import as_json, document, escaped, facts, moment, table
from .operator import moment_option, place_of, place_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables
    from sa_outbox.operations.dead_letters import DeadLetterDetail, DeadLetterFilter

    from .operator import Place

F = TypeVar("F", bound="Callable[..., None]")
FILTERS = ("listener", "types", "key", "tenant", "reason", "code", "since", "until")


@click.group("dead-letters")
def dead_letters() -> None:
    """Inspect, replay, discard and edit what was given up.

    A replay goes only to the listener that gave the event up, from the dead letter's own copy, and
    in the order of its key.
    """


def filters(command: F) -> F:
    """Which dead letters."""
    for option in (
        moment_option("--until", "Given up before"),
        moment_option("--since", "Given up then or later"),
        click.option("--code", help="Code of the last error."),
        click.option("--reason", type=click.Choice(get_args(Reason))),
        click.option("--tenant"),
        click.option("--key"),
        click.option("--type", "types", multiple=True, help="Event type; * for any characters."),
        click.option("--listener"),
    ):
        command = option(command)
    return command


@dead_letters.command("list")
@filters
@click.option(
    "--resolution",
    type=click.Choice(["open", "replayed", "discarded", "fixed", "any"]),
    default="open",
    show_default=True,
)
@click.option("--before", type=int, help="Continue below this id: the end of the last page.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--count", is_flag=True, help="Only print how many there are.")
@click.option("--json", "as_json_", is_flag=True, help="One JSON object, for programs.")
@place_options
def list_(
    *, resolution: str, before: int | None, limit: int, count: bool, as_json_: bool, **options: Any
) -> None:
    """List dead letters, newest first, without their payload."""
    from sa_outbox.operations import dead_letters as operations  # noqa: PLC0415 - not for its help

    wanted = filter_of(options, resolution)
    place = place_of(options)
    if count:
        click.echo(place.ask(lambda c, tables: operations.count_dead_letters(c, tables, wanted)))
        return
    page = place.ask(
        lambda c, tables: operations.list_dead_letters(
            c, tables, wanted, before=before, limit=limit
        )
    )
    if as_json_:
        click.echo(as_json(page))
        return
    rows = [
        [
            each.id,
            moment(each.failed_at),
            each.listener,
            each.event_type,
            each.key,
            each.tenant,
            each.reason,
            each.attempts,
            each.resolution or "open",
            each.error_code,
            each.error_message,
        ]
        for each in page.letters
    ]
    headers = (
        "ID", "GIVEN UP", "LISTENER", "TYPE", "KEY", "TENANT", "REASON", "ATTEMPTS", "RESOLUTION",
        "CODE", "LAST ERROR",
    )  # fmt: skip
    if not rows:
        require_known(place, wanted)
    click.echo(table(headers, rows) if rows else "no dead letter")
    if page.next_before is not None:
        click.echo(f"there are more: --before {page.next_before}", err=True)


@dead_letters.command()
@click.argument("id_", metavar="ID", type=int)
@click.option("--mask", "masks", multiple=True, metavar="FIELD", help="Cover this field.")
@click.option("--json", "as_json_", is_flag=True, help="One JSON object, for programs.")
@place_options
def show(*, id_: int, masks: tuple[str, ...], as_json_: bool, **options: Any) -> None:
    """Show one with its copy of the event and the errors of every attempt."""
    found = show_one(place_of(options), id_)
    if as_json_:
        shown = {"letter": found.letter, "errors": found.errors, "headers": found.headers}
        click.echo(as_json({**shown, "payload": document(found.payload, masks)}))
        return
    letter = found.letter
    resolved = "open"
    if letter.resolution is not None:
        resolved = f"{letter.resolution} by {letter.resolved_by} at {moment(letter.resolved_at)}"
    pairs = {
        "dead letter": letter.id,
        "listener": letter.listener,
        "event_id": letter.event_id,
        "id in the log": letter.position,
        "type": letter.event_type,
        "key": letter.key,
        "tenant": letter.tenant,
        "written": moment(letter.event_created_at),
        "given up": moment(letter.failed_at),
        "reason": letter.reason,
        "attempts": letter.attempts,
        "crashes": letter.crashes,
        "resolution": resolved,
        "why": letter.resolved_why or "-",
        "edits": letter.edits,
    }
    errors = [
        [each.get("attempt"), _at(each), *(each.get(name) for name in ("error", "code", "message"))]
        for each in found.errors
    ]
    click.echo(facts(pairs))
    click.echo("\n" + table(("ATTEMPT", "AT", "ERROR", "CODE", "MESSAGE"), errors))
    click.echo(f"\nheaders: {escaped(document(found.headers, masks), lines=True)}")
    click.echo(f"payload: {escaped(document(found.payload, masks), lines=True)}")


def _at(error: Mapping[str, Any]) -> str:
    """When an attempt failed; as it is stored if it is no time."""
    try:
        return moment(datetime.fromisoformat(error["at"]))
    except (KeyError, TypeError, ValueError):
        return str(error.get("at", "-"))


def require_known(place: Place, wanted: DeadLetterFilter) -> None:
    """Nothing was found: refuse a listener or an event type that looks like a typo."""
    from sa_outbox.operations import known_names  # noqa: PLC0415 - rarely

    def ask(connection: Connection, tables: Tables) -> str:
        if wanted.listener is not None:
            known_names.check_listener(connection, tables, wanted.listener)
        return known_names.near_dead_types(connection, tables, wanted.types)

    if near := place.ask(ask):
        raise click.ClickException(f"no dead letter is of {' or '.join(wanted.types)}{near}")


def show_one(place: Place, id_: int) -> DeadLetterDetail:
    from sa_outbox.operations.dead_letters import show_dead_letter  # noqa: PLC0415 - not for --help

    return place.ask(lambda c, tables: show_dead_letter(c, tables, id_))


def filter_of(options: dict[str, Any], resolution: Any = "open") -> DeadLetterFilter:
    from sa_outbox.operations.dead_letters import DeadLetterFilter  # noqa: PLC0415 - not for --help

    given = {name: options.pop(name) for name in FILTERS}
    return DeadLetterFilter(**given, resolution=resolution)
