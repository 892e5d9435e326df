"""``status`` and ``top``: the state of everything."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from .answers import cli_errors, counted
from .display import as_json, holder, moment, span, table
from .operator import place_of, place_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sa_outbox.operations.overview import ListenerOverview, Overview

    from .operator import Place

    Answers = dict[str, Sequence[Mapping[str, Any]]]

_FOOT = ("", "q quits")
"""The last lines of ``top``: a place for errors, and how to quit."""
_SOME = 3
"""How many errors and open writers are shown when there is not enough room."""

_HEADERS = (
    "LISTENER", "STATE", "LAG", "AGE", "PARKED", "BEHIND", "SCHED", "DEAD", "HELD BY", "LEASE",
)  # fmt: skip


@click.command()
@place_options
@click.option("--json", "as_json_", is_flag=True, help="One JSON object, for programs.")
@click.option("--check", is_flag=True, help="Exit with 1 if something needs attention.")
@click.option(
    "--max-lag",
    type=click.FloatRange(min=0),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="With --check: acceptable age of the oldest unhandled event.",
)
@click.option(
    "--max-dead",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="With --check: acceptable number of open dead letters.",
)
def status(*, as_json_: bool, check: bool, max_lag: float, max_dead: int, **options: Any) -> None:
    """Show every listener: its backlog, and who works on it.

    LAG counts events above the cursor that are of the types the listener listens to. AGE is that
    of the oldest of them. HELD BY has the host and the process of each that works on it; LEASE is
    when the first of these claims ends, unless it is renewed.

    \b
    Exit codes: 0, and with --check 1 when a listener is late, stuck, or has dead letters.
    """
    place = place_of(options)
    found = _overview(place)
    wrong = list(complaints(found, max_lag=max_lag, max_dead=max_dead)) if check else []
    if as_json_:
        click.echo(as_json(found))
    else:
        click.echo(rendered(found, place))
    for each in wrong:
        click.echo(each, err=True)
    if wrong:
        raise click.exceptions.Exit(1)


@click.command()
@place_options
@click.option(
    "--interval",
    type=click.FloatRange(min=0.2, max=3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to refresh.",
)
def top(*, interval: float, **options: Any) -> None:
    """Show the output of status continuously. q or Ctrl-C quits. Without a terminal, once."""
    place = place_of(options)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        click.echo(rendered(_overview(place), place))
        return
    from .terminal import Keys, Screen  # noqa: PLC0415 - only where there is one

    found = _overview(place)  # errors at the start are reported as by any command
    trouble = ""
    # Ctrl-C may come while it asks, not only while it waits for a key.
    with suppress(KeyboardInterrupt), Keys() as keys, Screen() as screen:
        while True:
            shown = rendered(found, place, rows=screen.rows - len(_FOOT))
            screen.show("\n".join([shown, trouble, *_FOOT[1:]]))
            if keys.pressed(interval) in ("q", "Q", "\x04"):
                return
            try:
                found, trouble = _overview(place), ""
            except click.ClickException as error:
                trouble = f"since then: {error.format_message()}"


def _overview(place: Place) -> Overview:
    from sa_outbox.operations.overview import overview, overview_of  # noqa: PLC0415 - not for help

    found = None
    if place.database.drivername == "postgresql":
        with cli_errors(place.database):
            found = _ask(place)
    return place.ask(overview) if found is None else overview_of(found)


def _ask(place: Place) -> Answers | None:
    """Query with asyncpg directly: loading SQLAlchemy's engine would take longer than the answers.
    None: the database refuses, and the slower path reports why."""
    import asyncio  # noqa: PLC0415 - not for help

    import asyncpg  # noqa: PLC0415 - not for help

    from sa_outbox.schema.connect import dsn_of  # noqa: PLC0415 - not for help
    from sa_outbox.sql.people.overview import questions  # noqa: PLC0415 - not for help

    async def ask() -> Answers | None:
        # In one transaction and without named statements: works behind a pooler too.
        connection = await asyncpg.connect(dsn_of(place.database), statement_cache_size=0)
        try:
            async with connection.transaction(isolation="read_committed", readonly=True):
                asked = questions(place.names)
                return {name: await connection.fetch(each) for name, each in asked.items()}
        except asyncpg.PostgresError:
            return None
        finally:
            await connection.close()

    return asyncio.run(ask())


def complaints(found: Overview, *, max_lag: float, max_dead: int) -> Iterator[str]:
    """What needs attention, one line each."""
    for each in found.listeners:
        if each.lag_seconds is not None and each.lag_seconds > max_lag:
            paused = ", and is paused" if each.paused_at else ""
            yield f"listener {each.name} is {span(each.lag_seconds)} late{paused}"
        for cursor in each.cursors:
            if cursor.lease_expired:
                yield f"listener {each.name}: the process that worked on it is gone"
                break
    if found.dead_letters > max_dead:
        yield f"{counted(found.dead_letters, 'open dead letter')}: sa-outbox dead-letters list"


def rendered(found: Overview, place: Place, *, rows: int | None = None) -> str:
    """For people. With *rows*: the listeners that have waited longest, and how many others there
    are."""
    log = found.log
    span_of_ids = "empty" if log.last_id is None else f"ids {log.first_id} to {log.last_id}"
    errors = [
        [each.name, moment(last[0]), last[1], last[2]]
        for each in found.listeners
        if (last := each.last_error) is not None
    ]
    holders = [
        [each.pid or "prepared", each.application_name, each.state, span(each.seconds)]
        for each in found.holders
    ]
    some = None if rows is None else _SOME
    below = [
        *_tabled(("LAST ERROR OF", "AT", "CODE", "MESSAGE"), errors, some),
        *_tabled(("OPEN WRITER", "APPLICATION", "STATE", "OPEN FOR"), holders, some),
    ]
    lines = [
        f"{place.shown} at {moment(found.at)}",
        f"log: {span_of_ids}; consumers alive: {len(found.consumers)}",
    ]
    listeners, most = list(found.listeners), None
    if rows is not None:
        # Blank line, headers, and the line that counts the others.
        most = max(_SOME, rows - len(lines) - len(below) - 3)
        if len(listeners) > most:
            listeners.sort(key=lambda each: (-(each.lag_seconds or 0), -each.dead_letters))
    if listeners:
        lines += _tabled(_HEADERS, [_row(each) for each in listeners], most)
    else:
        lines += ["", "no listener is registered: no consumer has run yet"]
    return "\n".join([*lines, *below])


def _tabled(
    headers: Sequence[str], rows: Sequence[Sequence[object]], most: int | None
) -> list[str]:
    """A blank line, and a table of the first *most* rows; nothing if there are none."""
    if not rows:
        return []
    left = 0 if most is None else len(rows) - most
    more = [f"and {left} more: sa-outbox status"] if left > 0 else []
    return ["", *table(headers, rows[:most]).splitlines(), *more]


def _row(each: ListenerOverview) -> list[object]:
    more = "" if each.deliveries.complete else "+"
    counts = each.deliveries
    return [
        each.name if len(each.cursors) <= 1 else f"{each.name} ({len(each.cursors)})",
        _state(each),
        each.lag_events + each.ranges.events,
        span(each.lag_seconds),
        f"{counts.parked}{more}" if more else counts.parked,
        f"{counts.behind}{more}" if more else counts.behind,
        f"{counts.scheduled}{more}" if more else counts.scheduled,
        each.dead_letters if each.dead_letters < 1000 else "1000+",
        holder(*each.owners),
        span(each.lease_seconds),
    ]


def _state(each: ListenerOverview) -> str:
    if not each.cursors:
        return "gone"
    if each.paused_at is not None:
        return "paused"
    if any(cursor.lease_expired for cursor in each.cursors):
        return "left alone"
    if each.retry_count:
        return f"retry {each.retry_count}"
    return "caught up" if not each.lag_events and not each.ranges.events else "behind"
