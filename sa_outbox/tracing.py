"""Where spans are begun, if somebody has asked for them; ``monitoring/traces.py`` makes them.

Here only so that neither side depends on OpenTelemetry: without it, whoever adds an event or
handles one looks at a name and finds None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from .event import Event


class Attempt(Protocol):
    """The span of a handler that runs."""

    def failed(self, error: BaseException) -> None: ...


class Tracing(Protocol):
    def added(self, event: Event[Any], headers: dict[str, str | int]) -> None:
        """An event is being added: put into its *headers* what its handlers go on from."""

    def handling(
        self, listener: str, events: Sequence[Event[Any]], *, attempt: int, batch: bool
    ) -> AbstractContextManager[Attempt]:
        """The handler runs inside of it."""
        raise NotImplementedError


present: Tracing | None = None
"""Of the whole process; looked at for each event that is added, and by each hand when it begins."""
