"""``dead-letters``: list and show."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from sa_outbox.policy.delivery import Reason
from sa_outbox.policy.error.tracebacks import traceback_text

from .answers import NearChoice
from .display import as_json, document, escaped, facts, moment, table
from .operator import limit_option, moment_option, place_of, place_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables
    from sa_outbox.operations.dead_letters import DeadLetterDetail, DeadLetterFilter

    from .operator import Place

F = TypeVar("F", bound="Callable[..., None]")
FILTERS = ("listener", "types", "key", "tenant", "reason", "code", "fingerprint", "since", "until")


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
        click.option(
            "--fingerprint", help="Fingerprint of the last error, from list --group-by error."
        ),
        click.option("--code", help="Code of the last error."),
        click.option("--reason", type=NearChoice(get_args(Reason)), help="Why it was given up."),
        click.option("--tenant", help="Tenant of the event."),
        click.option("--key", help="Key of the event."),
        click.option("--type", "types", multiple=True, help="Event type; * for any characters."),
        click.option("--listener", help="The listener that gave it up."),
    ):
        command = option(command)
    return command


@dead_letters.command("list")
@filters
@click.option(
    "--resolution",
    type=NearChoice(["open", "replayed", "discarded", "fixed", "any"]),
    default="open",
    show_default=True,
    help="What became of it since; any for all of them.",
)
@click.option("--before", type=int, help="Continue below this id: the end of the last page.")
@limit_option
@click.option("--count", is_flag=True, help="Only print how many there are.")
@click.option("--group-by", type=NearChoice(["error"]), help="Count them by their last error.")
@click.option("--json", "as_json_", is_flag=True, help="One JSON object, for programs.")
@place_options
def list_(
    *,
    resolution: str,
    before: int | None,
    limit: int,
    count: bool,
    group_by: str | None,
    as_json_: bool,
    **options: Any,
) -> None:
    """List dead letters, newest first, without their payload."""
    from sa_outbox.operations import dead_letters as operations  # noqa: PLC0415 - not for its help

    wanted = filter_of(options, resolution)
    place = place_of(options)
    if count:
        click.echo(place.ask(lambda c, tables: operations.count_dead_letters(c, tables, wanted)))
        return
    if group_by is not None:
        _list_groups(place, wanted, limit, as_json_=as_json_)
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


def _list_groups(place: Place, wanted: DeadLetterFilter, limit: int, *, as_json_: bool) -> None:
    from sa_outbox.operations import dead_letters as operations  # noqa: PLC0415 - not for its help

    groups = place.ask(
        lambda c, tables: operations.group_dead_letters(c, tables, wanted, limit=limit)
    )
    if as_json_:
        click.echo(as_json({"groups": groups}))
        return
    rows = [
        [
            each.error_fingerprint,
            each.count,
            moment(each.first_at),
            moment(each.last_at),
            each.error_class or each.error_code,
            _names(each.listeners, each.listener_count),
            each.sample,
            each.error_message,
        ]
        for each in groups
    ]
    headers = (
        "FINGERPRINT", "COUNT", "FIRST", "LAST", "ERROR", "LISTENERS", "SAMPLE", "ITS MESSAGE",
    )  # fmt: skip
    if not rows:
        require_known(place, wanted)
    click.echo(table(headers, rows) if rows else "no dead letter")
    if len(groups) == limit:
        click.echo("there may be more: --limit", err=True)


def _names(listeners: Sequence[str], number: int) -> str:
    more = number - len(listeners)
    return ", ".join(listeners) + (f" and {more} more" if more > 0 else "")


@dead_letters.command()
@click.argument("id_", metavar="ID", type=int)
@click.option(
    "--mask", "masks", multiple=True, metavar="FIELD", help="Mask this field. Repeatable."
)
@click.option("--json", "as_json_", is_flag=True, help="One JSON object, for programs.")
@place_options
def show(*, id_: int, masks: tuple[str, ...], as_json_: bool, **options: Any) -> None:
    """Show one: its event, its errors and their tracebacks."""
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
        "fingerprint": letter.error_fingerprint or "-",
    }
    errors = [
        [each.get("attempt"), _at(each), *(each.get(name) for name in ("error", "code", "message"))]
        for each in found.errors
    ]
    click.echo(facts(pairs))
    click.echo("\n" + table(("ATTEMPT", "AT", "ERROR", "CODE", "MESSAGE"), errors))
    _show_tracebacks(found.errors)
    click.echo(f"\nheaders: {escaped(document(found.headers, masks), lines=True)}")
    click.echo(f"payload: {escaped(document(found.payload, masks), lines=True)}")


def _show_tracebacks(errors: Sequence[Mapping[str, Any]]) -> None:
    """Each once: most attempts fail at the same place."""
    attempts: dict[str, list[str]] = {}
    for each in errors:
        if each.get("traceback"):
            shown = attempts.setdefault(traceback_text(each["traceback"]), [])
            shown.append("?" if each["attempt"] is None else str(each["attempt"]))
    for text, numbers in attempts.items():
        of = "attempt" if len(numbers) == 1 else "attempts"
        click.echo(f"\ntraceback of {of} {', '.join(numbers)}:\n{escaped(text, lines=True)}")


def _at(error: Mapping[str, Any]) -> str:
    """When an attempt failed; as it is stored if it is no time."""
    try:
        return moment(datetime.fromisoformat(error["at"]))
    except (KeyError, TypeError, ValueError, OverflowError):
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
