"""Where spans begin, if tracing is on; ``monitoring/traces.py`` creates them.

This module exists so that neither side depends on OpenTelemetry: without it, adding or handling an
event reads one name and finds None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from .event import Event


class Attempt(Protocol):
    """The span of a running handler."""

    def failed(self, error: BaseException) -> None: ...


class Tracing(Protocol):
    def added(self, event: Event[Any], headers: dict[str, str | int]) -> None:
        """An event is being added: put into its *headers* what its handlers continue the trace
        from."""

    def handling(
        self, listener: str, events: Sequence[Event[Any]], *, attempt: int, batch: bool
    ) -> AbstractContextManager[Attempt]:
        """The handler runs inside this context."""
        raise NotImplementedError


present: Tracing | None = None
"""One for the whole process; read for each added event, and by each handler task when it starts."""
