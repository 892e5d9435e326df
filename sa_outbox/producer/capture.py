"""Where a test watches events being added: ``sa_outbox.testing``. In a program nobody does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.engine import Connection

    from .pending import Pending


class Waiting(Protocol):
    """A session's events that wait to be written."""

    pending: list[Pending]


class Capture(Protocol):
    def added(self, pending: Pending, waiting: Waiting) -> None:
        """An event waits to be written, in a session's scope."""

    def wrote(self, connection: Connection, rows: Sequence[tuple[Pending, str]]) -> None:
        """Events were written, with these rows. The fate of the connection's transaction is
        theirs."""

    def kept(self, connection: Connection, savepoint: str) -> None:
        """What was written in *savepoint* was released, and a new one has its name."""


present: Capture | None = None
"""The one that watches this process."""
