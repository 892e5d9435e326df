"""Making the listeners known to the database: where each one's cursor begins."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sa_outbox.errors import ConfigError
from sa_outbox.observe import ListenerOrphaned, ListenerRegistered

from ..position.gaps import Gaps
from .alerts import report_orphan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sa_outbox.declare.listener import Listener
    from sa_outbox.outbox import Outbox

    from ..shared.context import ConsumerContext


async def register(
    context: ConsumerContext, listeners: Iterable[Listener], declared: Iterable[str]
) -> None:
    """Give each partition of each of *listeners* a cursor, unless it has one; report cursors that
    nobody declares. Raises :class:`ConfigError`."""
    rows = await context.connections.rows(context.statements.registered)
    known = {row["name"]: row["position"] for row in rows}
    counts = {row["name"]: row["count"] for row in rows}
    described = {row["name"]: _recorded(row) for row in rows}
    context.horizon.saw(max(known.values(), default=0))
    for listener in listeners:
        if listener.name not in known:
            await _register(context, listener)
        elif not listener.order_mode.is_divisible and counts[listener.name] != 1:
            raise ConfigError(
                f"listener {listener.name!r} is declared with order={listener.order!r} and has "
                f"{counts[listener.name]} partitions in the database, each with a cursor of its "
                "own: bring it to one with repartition() first"
            )
        elif described[listener.name] != _recorded(_description(listener)):
            values = {"name": listener.name, **_description(listener)}
            await context.connections.rows(context.statements.describe, **values)
    declared = set(declared)
    for name, position in known.items():
        if name not in declared:
            await report_orphan(context, ListenerOrphaned(name, position))


async def _register(context: ConsumerContext, listener: Listener) -> None:
    position, gaps = await _beginning(context, listener)
    made = await context.connections.rows(
        context.statements.register,
        name=listener.name,
        count=listener.partitions,
        position=position,
        gaps=gaps.dump(),
        fingerprint=listener.fingerprint,
        **_description(listener),
    )
    if made:  # otherwise another process was faster
        context.observers.emit(ListenerRegistered(listener.name, position))


def _description(listener: Listener) -> dict[str, Any]:
    """Which events it gets, and in what order, for those who do not have the program."""
    tenant = None if listener.forwarding is None else listener.forwarding.tenant
    return {
        "types": sorted(listener.on),
        "filter": listener.payload_filter,
        "tenant": tenant,
        "order": listener.order,
    }


def _recorded(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """A description, to be compared: a filter can be written in more than one way."""
    fields = row["filter"]
    with suppress(ValueError, RecursionError):  # written by hand; it is replaced
        fields = None if fields is None else json.loads(fields)
    return row["types"], fields, row["tenant"], row["order"]


async def _beginning(context: ConsumerContext, listener: Listener) -> tuple[int, Gaps]:
    start = listener.start
    connections, statements = context.connections, context.statements
    if isinstance(start, int):
        return start - 1, Gaps()
    if isinstance(start, datetime):
        first: int | None = await connections.value(statements.first_since, time=start)
        if first is not None:
            return first - 1, await _holes(context, first)
    elif start == "beginning":
        return 0, Gaps()
    ceiling: int = await connections.value(statements.ceiling)
    return ceiling, await _holes(context, ceiling)


async def _holes(context: ConsumerContext, ceiling: int) -> Gaps:
    """Where events below *ceiling*, a visible id, may be uncommitted: they must not be skipped.

    In the order of the grace period: the ceiling, the writers, then the ids that are missing. A
    missing id belongs to one of those writers, or will never appear; without writers, none will.
    """
    connections, statements = context.connections, context.statements
    writers = await connections.rows(statements.holders)
    if not writers:
        return Gaps()
    rows = await connections.rows(statements.holes, ceiling=ceiling)
    return Gaps((row["lo"], row["hi"]) for row in rows)


def chosen(outbox: Outbox, names: Sequence[str] | None) -> list[Listener]:
    """The listeners of these names; all without names."""
    if not len(outbox.listeners) and outbox.endpoints is None:
        raise ConfigError("this outbox has no listener: declare one with @outbox.listener(...)")
    if names is None:
        return list(outbox.listeners)
    for name in names:
        if name not in outbox.listeners:
            known = ", ".join(each.name for each in outbox.listeners)
            raise ConfigError(f"there is no listener {name!r}; there are: {known}")
    return [each for each in outbox.listeners if each.name in names]
