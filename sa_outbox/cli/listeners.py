"""``listeners``: list, pause, resume, rewind, skip, retire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .answers import counted
from .display import holder, moment, span, table
from .operator import (
    confirm,
    moment_option,
    operator_of,
    operator_options,
    place_of,
    place_options,
    yes_option,
)

if TYPE_CHECKING:
    from datetime import datetime

    from sa_outbox.operations.listeners import Moved
    from sa_outbox.operations.overview import Cursor, ListenerOverview


@click.group()
def listeners() -> None:
    """Inspect and move listeners.

    Safe while consumers run: the consumer of a listener that is moved loses its lease, its events
    in flight are not recorded, and it restarts at the new position.
    """


@listeners.command("list")
@place_options
def list_(**options: Any) -> None:
    """List every partition of every listener: cursor, retries, holder.

    HELD BY has the host and the process that works on it; LEASE is when that claim ends, unless it
    is renewed. A queue is held in ranges: sa-outbox queues list.
    """
    from sa_outbox.operations.overview import overview  # noqa: PLC0415 - not for its help

    found = place_of(options).ask(overview)
    headers = (
        "LISTENER", "PART", "CURSOR", "LAG", "AGE", "HELD BY", "LEASE", "RETRIES", "AT", "AGAIN",
        "PAUSED",
    )  # fmt: skip
    rows = [
        [
            each.name,
            cursor.partition,
            cursor.position,
            cursor.lag_events,
            span(cursor.lag_seconds),
            _holder(each, cursor),
            span(cursor.lease_seconds or each.ranges.lease_seconds),
            cursor.retry_count,
            cursor.retry_position or "-",
            moment(cursor.retry_after),
            moment(each.paused_at),
        ]
        for each in found.listeners
        for cursor in each.cursors
    ]
    click.echo(table(headers, rows) if rows else "no listener is registered")


@listeners.command()
@click.argument("name")
@place_options
@operator_options
def pause(*, name: str, **options: Any) -> None:
    """Stop all work on NAME until it is resumed. Events in flight are finished."""
    from sa_outbox.operations.listeners import pause_listener  # noqa: PLC0415 - not for --help

    place, operator = place_of(options), operator_of(options)
    changed = place.ask(lambda c, tables: pause_listener(c, tables, name, operator))
    click.echo(f"listener {name}: {'paused' if changed else 'was already paused'}")


@listeners.command()
@click.argument("name")
@place_options
@operator_options
def resume(*, name: str, **options: Any) -> None:
    """Let NAME continue."""
    from sa_outbox.operations.listeners import resume_listener  # noqa: PLC0415 - not for --help

    place, operator = place_of(options), operator_of(options)
    changed = place.ask(lambda c, tables: resume_listener(c, tables, name, operator))
    click.echo(f"listener {name}: {'resumed' if changed else 'was not paused'}")


@listeners.command()
@click.argument("name")
@click.option("--to-id", type=click.IntRange(min=1), help="The first event to handle again.")
@moment_option("--to-time", "Events written then or later")
@click.option("--to-beginning", is_flag=True, help="Handle everything again that is retained.")
@place_options
@operator_options
@yes_option
def rewind(
    *,
    name: str,
    to_id: int | None,
    to_time: datetime | None,
    to_beginning: bool,
    yes: bool,
    **options: Any,
) -> None:
    """Make NAME handle events again, in order, from a position on.

    Waiting deliveries and dead letters from there on come from the log again.
    """
    from sa_outbox.operations.listeners import rewind_listener  # noqa: PLC0415 - not for --help

    to: Any = _one_of("beginning" if to_beginning else None, to_id, to_time)
    place, operator = place_of(options), operator_of(options)
    what = f"listener {name!r} handles every event again from {_shown(to)} on."
    confirm(place, what, name, yes=yes)
    moved = place.ask(lambda c, tables: rewind_listener(c, tables, name, operator, to=to))
    _print(moved)
    if moved.deliveries or moved.dead_letters:
        click.echo(
            f"from the log again: {counted(moved.deliveries, 'waiting delivery')}, "
            f"{counted(moved.dead_letters, 'dead letter')}"
        )


@listeners.command()
@click.argument("name")
@click.option("--to-id", type=click.IntRange(min=1), help="The last event to skip.")
@moment_option("--to-time", "Events written before")
@click.option("--to-now", is_flag=True, help="Skip everything there is now.")
@click.option("--event", type=click.IntRange(min=1), help="Skip one event, by its id in the log.")
@click.option("--stuck", is_flag=True, help="Skip the one event that it is stuck at.")
@place_options
@operator_options
@yes_option
def skip(
    *,
    name: str,
    to_id: int | None,
    to_time: datetime | None,
    to_now: bool,
    event: int | None,
    stuck: bool,
    yes: bool,
    **options: Any,
) -> None:
    """Make NAME skip events that it has not claimed.

    It never handles them. Waiting deliveries and dead letters stay. An event whose transaction is
    open is handled when it commits.
    """
    from sa_outbox.operations.listeners import skip_event, skip_listener  # noqa: PLC0415 - not for --help

    to: Any = _one_of("now" if to_now else None, to_id, to_time, event, "stuck" if stuck else None)
    place, operator = place_of(options), operator_of(options)
    if stuck or event is not None:
        which = "the event it is stuck at" if stuck else f"event {event}"
        confirm(place, f"listener {name!r} never handles {which}.", name, yes=yes)
        position = place.ask(
            lambda c, tables: skip_event(c, tables, name, operator, position=event)
        )
        click.echo(f"listener {name}: event {position} is skipped")
        return
    what = f"listener {name!r} never handles what it has not claimed up to {_shown(to)}."
    confirm(place, what, name, yes=yes)
    moved = place.ask(lambda c, tables: skip_listener(c, tables, name, operator, to=to))
    _print(moved)
    if moved.held_back:
        held = counted(moved.held_back, "id")
        click.echo(f"{held} of open transactions: handled if the transaction commits")


@listeners.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Do it even while a consumer works on it.")
@place_options
@operator_options
@yes_option
def retire(*, name: str, force: bool, yes: bool, **options: Any) -> None:
    """Remove NAME, a listener that is gone forever. Its dead letters stay."""
    from sa_outbox.operations.listeners import retire_listener  # noqa: PLC0415 - not for --help

    place, operator = place_of(options), operator_of(options)
    confirm(place, f"listener {name!r} loses its cursors and what waits for it.", name, yes=yes)
    gone = place.ask(lambda c, tables: retire_listener(c, tables, name, operator, force=force))
    click.echo(
        f"listener {name}: retired, with {counted(gone.partitions, 'cursor')}, "
        f"{counted(gone.deliveries, 'delivery')} and {counted(gone.ranges, 'range')}"
    )


def _holder(listener: ListenerOverview, cursor: Cursor) -> str:
    """Nobody holds the cursor of a queue; processes hold ranges of it."""
    if cursor.lease_expired:
        return "expired"
    return holder(cursor.owner) if cursor.owner else holder(*listener.ranges.owners)


def _one_of(*given: object) -> object:
    found = [each for each in given if each is not None]
    if len(found) != 1:
        raise click.UsageError("name exactly one target: see --help")
    return found[0]


def _shown(to: object) -> str:
    if isinstance(to, str):
        return f"the {to}" if to == "beginning" else to
    return f"id {to}" if isinstance(to, int) else str(to)


def _print(moved: Moved) -> None:
    for each in moved.cursors:
        part = f" ({each.partition})" if len(moved.cursors) > 1 else ""
        click.echo(f"listener {moved.name}{part}: cursor {each.before} -> {each.position}")
