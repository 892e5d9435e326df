"""A delivery loop for one range of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..fault.quarantine import CrashQuarantine
from ..loop.loop import DeliveryLoop
from ..position.progress import Progress
from .range_source import RangeSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import anyio

    from sa_outbox.declare.listener import Listener

    from ..connection.connections import Query
    from ..lease.lease import Lease
    from ..loop.limits import ConcurrencyLimits
    from ..shared.context import ConsumerContext


def range_loop(
    context: ConsumerContext,
    listener: Listener,
    lease: Lease,
    rows: Sequence[Any] | None,
    *,
    read: Query,
    slots: anyio.Semaphore,
    limits: ConcurrencyLimits | None,
    changed: Callable[[], None],
) -> DeliveryLoop[RangeSource]:
    """*rows* are what the claim returned; None: they are to be *read*. *changed* is called when a
    delivery of the range has a row of its own, and a time."""
    progress = Progress(lease.position, lease.gaps, lease.revision)
    quarantine = CrashQuarantine(lease.crashes, lease.suspects, listener)
    source = RangeSource(
        context, lease, progress, quarantine, rows=rows, read=read, limits=limits, changed=changed
    )
    return DeliveryLoop(context, listener, lease, progress, quarantine, source, slots=slots)
