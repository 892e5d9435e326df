"""The loop of a listener whose cursor is in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..fault.quarantine import CrashQuarantine
from ..position.progress import Progress
from .log_source import LogSource
from .loop import DeliveryLoop

if TYPE_CHECKING:
    from sa_outbox.declare.listener import Listener

    from ..lease.lease import Lease
    from ..shared.context import ConsumerContext


def log_loop(context: ConsumerContext, listener: Listener, lease: Lease) -> DeliveryLoop[LogSource]:
    progress = Progress(lease.position, lease.gaps, lease.revision)
    quarantine = CrashQuarantine(lease.crashes, lease.suspects, listener)
    source = LogSource(context, listener, lease, progress, quarantine)
    return DeliveryLoop(context, listener, lease, progress, quarantine, source)


def has_drained(loop: DeliveryLoop[LogSource], number: int, *, retries: bool) -> bool:
    """Everything visible at snapshot *number* is settled; with *retries*, what waits too."""
    if not loop.source.has_taken_in(number) or not loop.is_idle:
        return False
    if loop.holds_one:
        return not retries
    return loop.has_settled_all and not loop.source.has_due(retries=retries)
