"""``drain(engine)``: a real consumer delivers what is committed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, overload

import anyio
from sqlalchemy.ext.asyncio import AsyncEngine

from sa_outbox.clock import clock
from sa_outbox.consumer import Consumer
from sa_outbox.consumer.shared.task_errors import one_error
from sa_outbox.errors import OutboxError
from sa_outbox.observe import AttemptFailed, DeadLettered, DeliverySettled

from .deliveries import Deliveries, Delivery
from .loop_thread import run_to_its_end

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence
    from uuid import UUID

    from sqlalchemy import Engine

    from sa_outbox.observe import Observation
    from sa_outbox.outbox import Outbox
    from sa_outbox.policy.delivery import Reason


MAX_ROUNDS = 100
"""How often events that handlers added are followed."""


class Drain(Protocol):
    """``drain`` for one outbox: what the fixture ``outbox_drain`` is."""

    @overload
    def __call__(
        self, engine: AsyncEngine, /, *, listeners: Sequence[str] | None = None
    ) -> Awaitable[Deliveries]: ...

    @overload
    def __call__(
        self, engine: Engine, /, *, listeners: Sequence[str] | None = None
    ) -> Deliveries: ...


@overload
def drain(
    outbox: Outbox, engine: AsyncEngine, /, *, listeners: Sequence[str] | None = None
) -> Awaitable[Deliveries]: ...


@overload
def drain(
    outbox: Outbox, engine: Engine, /, *, listeners: Sequence[str] | None = None
) -> Deliveries: ...


def drain(
    outbox: Outbox,
    engine: Engine | AsyncEngine,
    /,
    *,
    listeners: Sequence[str] | None = None,
) -> Any:
    """Deliver everything that is committed and due, with a real consumer, and return what happened.

    ::

        deliveries = await drain(outbox, async_engine)
        deliveries = drain(outbox, engine)

    The clock stands still meanwhile: an event that fails waits for its retry, until the clock is
    moved and ``drain`` called again. Crons whose time has come add their events. What handlers and
    crons add is delivered too. *listeners* are the names of those to run; by default all of them
    run, relays included.
    """

    async def drained() -> Deliveries:
        seen: list[Observation] = []
        consumer = Consumer(outbox, engine, listeners=listeners, observers=[seen.append])
        with clock.standing_still(), one_error():
            async with anyio.create_task_group() as tasks:
                await tasks.start(consumer.run)
                await _drain(consumer, seen)
                consumer.stop("drained")
            return Deliveries(_deliveries(seen))

    return drained() if isinstance(engine, AsyncEngine) else run_to_its_end(drained)


async def _drain(consumer: Consumer, seen: Sequence[Observation]) -> None:
    """Until there is nothing left: what a handler has added is committed when it is settled."""
    settled = -1
    for _ in range(MAX_ROUNDS):
        if settled == (settled := _settled(seen)):
            return
        await consumer.drain(retries=False)
    raise OutboxError(f"{MAX_ROUNDS} rounds, and handlers still add events: do they end?")


def _settled(seen: Sequence[Observation]) -> int:
    return sum(isinstance(each, DeliverySettled) for each in seen)


def _deliveries(seen: Sequence[Observation]) -> list[Delivery]:
    failed: dict[tuple[str, UUID], AttemptFailed] = {}
    reasons: dict[tuple[str, UUID], Reason] = {}
    for each in seen:
        if isinstance(each, DeadLettered):
            reasons[each.listener, each.event_id] = each.reason
    found: list[Delivery] = []
    for each in seen:
        if isinstance(each, AttemptFailed):
            failed[each.listener, each.event_id] = each
        elif isinstance(each, DeliverySettled):
            which = each.listener, each.event_id
            found.append(_delivery(each, failed.pop(which, None), reasons.get(which)))
    return found


def _delivery(
    settled: DeliverySettled, failed: AttemptFailed | None, reason: Reason | None
) -> Delivery:
    retry_in = None if failed is None else failed.retry_in
    due_at = None if retry_in is None else clock.current() + timedelta(seconds=retry_in)
    return Delivery(
        listener=settled.listener,
        event_type=settled.event_type,
        event_id=settled.event_id,
        outcome=settled.outcome,
        attempt=settled.attempt,
        due_at=due_at,
        failure=None if failed is None else failed.failure,
        reason=reason,
    )
