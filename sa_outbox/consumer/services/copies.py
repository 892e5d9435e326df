"""A copy of the database acts on nothing outside it, until somebody adopts it.

Listeners declared ``external=True`` are not claimed, nor are ranges of such queues; all others
continue where they were. Whoever claims checks ``ConsumerContext.withheld`` first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sa_outbox.observe import CopyAdopted, CopyFound
from sa_outbox.schema.identity import adopt_command

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from sa_outbox.declare.listener import Listener
    from sa_outbox.schema.identity import Home
    from sa_outbox.settings import Names

    from ..shared.context import ConsumerContext
    from ..shared.sync import AutoResetEvent


class Working(Protocol):
    """Those who work under leases."""

    def stop_listeners(self, names: Collection[str]) -> None: ...


class Copies:
    def __init__(
        self, context: ConsumerContext, listeners: Iterable[Listener], names: Names
    ) -> None:
        self._context = context
        self._external = tuple(each.name for each in listeners if each.external)
        self._names = names
        self._followers: list[tuple[Working, AutoResetEvent]] = []

    def follow(self, working: Working, bell: AutoResetEvent) -> None:
        """Have *working* stop what is withheld, and ring *bell* when something may be claimed."""
        self._followers.append((working, bell))

    def found(self, home: Home) -> None:
        """It is known which database this is: act on what has changed."""
        withheld = set(self._external) if home.is_copy else set()
        if withheld == self._context.withheld:
            return
        self._context.withheld.clear()
        self._context.withheld.update(withheld)
        if withheld:
            self._context.observers.emit(
                CopyFound(home.database, self._external, adopt_command(self._names))
            )
        else:
            self._context.observers.emit(CopyAdopted(home.database, self._external))
        for working, bell in self._followers:
            working.stop_listeners(withheld)
            bell.ring()
