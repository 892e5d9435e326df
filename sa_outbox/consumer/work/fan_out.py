"""Passes on what LISTEN reports beside new events: to the leases, the queues, the verification."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..services.lease_coordinator import LeaseCoordinator
    from ..services.verification import Verification
    from ..shared.context import ConsumerContext
    from .workload import Workload


class FanOut:
    """Everything here is a hint: whoever gets none finds out by a poll."""

    def __init__(
        self,
        context: ConsumerContext,
        leases: LeaseCoordinator,
        workload: Workload,
        verification: Verification,
    ) -> None:
        self._context = context
        self._leases = leases
        self._workload = workload
        self._verification = verification

    def released(self) -> None:
        """Another process has given something back, a person has changed something, or a test has
        moved the clock."""
        self._leases.bell.ring()
        self._workload.wake_queues()
        self._workload.look_for_due()

    def cancelled(self) -> None:
        """Somebody has cancelled an event."""
        self._workload.look_for_requests()

    def adopted(self) -> None:
        """This copy of a database is an original now."""
        self._verification.bell.ring()

    def reconnected(self, after_trouble: bool) -> None:  # noqa: FBT001 - a callback
        """The LISTEN connection is new: look for what was missed. *after_trouble*, the server may
        be another one than at the start."""
        if after_trouble:
            self._verification.bell.ring()
            self._context.continuity.doubt()
        self._leases.bell.ring()
        self._context.bell.ring("reconnect")

    def lost(self) -> None:
        """No notification arrives anymore: poll often from now on."""
        self._leases.bell.ring()
        self._context.bell.ring("poll")
