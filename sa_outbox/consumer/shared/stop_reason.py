"""Why a consumer stops, with the exit code that this means for its process."""

from __future__ import annotations

from enum import Enum


class StopReason(Enum):
    """A process that was not asked to stop exits with an error: it should be restarted."""

    REQUESTED = ("requested", 0)
    DRAINED = ("drained", 0)
    HANDLER = ("handler", 5)
    """A handler raised SystemExit or KeyboardInterrupt."""
    STUCK = ("stuck", 6)
    """A handler ignored its cancellation."""

    @property
    def exit_code(self) -> int:
        return self.value[1]
