"""``dead-letters``: replay, discard and edit."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from .answers import cli_errors, counted
from .dead_letters import (
    FILTERS,
    dead_letters,
    filter_of,
    filters,
    require_known,
    show_one,
)
from .display import document
from .operator import (
    app_option,
    identity,
    operator_of,
    operator_options,
    place_of,
    place_options,
    yes_option,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables
    from sa_outbox.operations.dead_letters import DeadLetterFilter
    from sa_outbox.operations.resolution import Chosen, Resolved

    from .operator import Place

__all__ = ["dead_letters"]


@dead_letters.command()
@click.argument("ids", metavar="[ID]...", nargs=-1, type=int)
@filters
@click.option("--all", "everything", is_flag=True, help="Select all open ones.")
@click.option("--dry-run", is_flag=True, help="Only print how many.")
@place_options
@operator_options
@yes_option
def replay(
    *, ids: tuple[int, ...], everything: bool, dry_run: bool, yes: bool, **options: Any
) -> None:
    """Deliver open ones again: by ID, or all that the options select.

    Each goes to its own listener, those of one key in their order. Safe to run again.
    """
    from sa_outbox.operations.resolution import replay_dead_letters  # noqa: PLC0415 - not for its help

    wanted = _chosen(ids, options, everything=everything)
    place, operator = place_of(options), operator_of(options)
    _resolve(
        place,
        ids,
        wanted,
        "replayed",
        lambda batch: place.ask(lambda c, tables: replay_dead_letters(c, tables, batch, operator)),
        dry_run=dry_run,
        yes=yes,
    )


@dead_letters.command()
@click.argument("ids", metavar="[ID]...", nargs=-1, type=int)
@filters
@click.option("--all", "everything", is_flag=True, help="Select all open ones.")
@click.option("--fixed", is_flag=True, help="Record that they were resolved by other means.")
@click.option("--dry-run", is_flag=True, help="Only print how many.")
@place_options
@operator_options
@yes_option
def discard(
    *,
    ids: tuple[int, ...],
    everything: bool,
    fixed: bool,
    dry_run: bool,
    yes: bool,
    **options: Any,
) -> None:
    """Discard open ones: by ID, or all that the options select. They stay, marked as resolved."""
    from sa_outbox.operations.resolution import discard_dead_letters  # noqa: PLC0415 - not for its help

    wanted = _chosen(ids, options, everything=everything)
    place, operator = place_of(options), operator_of(options)
    _resolve(
        place,
        ids,
        wanted,
        "fixed" if fixed else "discarded",
        lambda batch: place.ask(
            lambda c, tables: discard_dead_letters(
                c, tables, batch, operator, resolution="fixed" if fixed else "discarded"
            )
        ),
        dry_run=dry_run,
        yes=yes,
    )


@dead_letters.command()
@click.argument("id_", metavar="ID", type=int)
@click.option("--payload", metavar="JSON", help="The new payload.  [default: in $EDITOR]")
@click.option("--payload-file", type=click.File(), help="A file with the new payload; - is stdin.")
@click.option("--headers", metavar="JSON", help="New headers, all of them.")
@click.option("--replay", "replayed", is_flag=True, help="Replay it afterwards.")
@app_option("With it, its check_event, contract and limits apply to the edit.")
@place_options
@operator_options
def edit(
    *,
    id_: int,
    payload: str | None,
    payload_file: Any,
    headers: str | None,
    replayed: bool,
    app: str | None,
    **options: Any,
) -> None:
    """Change the copy of the event that a replay delivers. The original is kept.

    What your program refuses (check_event, contract) is refused here if --app names its outbox.
    """
    from sa_outbox.operations.resolution import (  # noqa: PLC0415 - not for its help
        edit_dead_letter,
        replay_dead_letters,
    )

    place, operator = place_of(options), operator_of(options)
    rules = _rules(app)
    before = show_one(place, id_)
    given = payload if payload_file is None else payload_file.read()
    if given is None and headers is None:
        given = click.edit(document(before.payload), extension=".json")
        if given is None:
            raise click.ClickException("the file was not saved: nothing was changed")
    changed = {
        "payload": _parsed(before.payload if given is None else given, "payload"),
        "headers": None if headers is None else _parsed(headers, "headers"),
    }

    def work(connection: Any, tables: Any) -> int:
        edits = before.letter.edits
        letter = edit_dead_letter(
            connection, tables, id_, operator, edits=edits, **changed, **rules
        )
        if replayed:
            replay_dead_letters(connection, tables, [id_], operator)
        return letter.edits

    count = place.ask(work)
    times = "once" if count == 1 else f"{count} times"
    click.echo(f"dead letter {id_}: edited, {times} by now{'; replayed' if replayed else ''}")
    if app is None:
        click.echo("no check_event or contract was applied: --app names your outbox", err=True)


def _rules(app: str | None) -> dict[str, Any]:
    """What the program takes, as arguments of ``edit_dead_letter``."""
    if app is None:
        return {}
    from sa_outbox.consume.loader import load_outbox  # noqa: PLC0415 - the user's program

    with cli_errors():
        settings = load_outbox(app).settings
    return {"limits": settings.limits, "admission": settings.admission}


def _parsed(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.ClickException(f"the {what} is not JSON: {error}") from error


def _chosen(
    ids: tuple[int, ...], options: dict[str, Any], *, everything: bool
) -> DeadLetterFilter | None:
    """None: select by ids. Raises a usage error if nothing or both is given."""
    is_filtered = everything or any(options[name] for name in FILTERS)
    wanted = filter_of(options)
    if bool(ids) == is_filtered:
        raise click.UsageError("select some: by ID, by options such as --listener, or --all")
    return None if ids else wanted


def _resolve(
    place: Place,
    ids: tuple[int, ...],
    wanted: DeadLetterFilter | None,
    what: str,
    resolve: Callable[[tuple[int, ...]], Resolved],
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    if wanted is None:
        _require_all(place, ids, what)
        count = len(ids)
    else:
        count = _count(place, wanted)
        if not count:
            require_known(place, wanted)
    some = counted(count, "dead letter")
    if dry_run:
        click.echo(f"{some} would be {what}")
        return
    if not count:
        click.echo(f"{some} {what}: no open one matches")
        return
    if wanted is not None or count > 1:
        click.echo(f"{identity(place)}:\n{some} will be {what}.", err=True)
        if not yes:
            click.confirm("Go on?", abort=True, err=True)
    done, left = 0, 0
    with _progress(count, what) as advance:
        for batch in _batches(place, ids, wanted):
            resolved = resolve(batch)
            done, left = done + len(resolved.ids), left + len(resolved.left)
            advance(len(batch))
    click.echo(f"{counted(done, 'dead letter')} {what}")
    if left:
        click.echo(
            f"not {what}: {left}. Resolved meanwhile, of an unknown listener, or already waiting",
            err=True,
        )
        if wanted is None:
            raise click.exceptions.Exit(1)


def _require_all(place: Place, ids: tuple[int, ...], what: str) -> None:
    """Before anything is changed: a typo in the last id must not leave the others half done."""
    for each in ids:
        try:
            show_one(place, each)
        except click.ClickException as error:
            raise click.ClickException(f"{error.message}; nothing was {what}") from error


@contextmanager
def _progress(count: int, what: str) -> Iterator[Callable[[int], object]]:
    """A bar on a terminal. Elsewhere its label alone would be printed, like an answer."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=count, label=what, file=sys.stderr) as bar:
        yield bar.update


def _count(place: Place, wanted: DeadLetterFilter) -> int:
    from sa_outbox.operations.dead_letters import count_dead_letters  # noqa: PLC0415 - not for its help

    return place.ask(lambda c, tables: count_dead_letters(c, tables, wanted))


def _batches(
    place: Place, ids: tuple[int, ...], wanted: DeadLetterFilter | None
) -> Iterator[tuple[int, ...]]:
    from sa_outbox.operations import resolution  # noqa: PLC0415 - not for its help

    if wanted is None:
        for first in range(0, len(ids), resolution.BATCH):
            yield ids[first : first + resolution.BATCH]
        return
    newest, after = place.ask(resolution.newest_dead_letter), None
    while True:

        def choose(connection: Connection, tables: Tables, place: Any = after) -> Chosen:
            return resolution.choose_dead_letters(
                connection, tables, wanted, newest=newest, after=place
            )

        chosen = place.ask(choose)
        if not chosen.ids:
            return
        after = chosen.last
        yield chosen.ids
