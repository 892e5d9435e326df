"""A session's events until its root transaction ends."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy import inspect

from ..errors import PendingTooLarge
from . import capture

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine
    from sqlalchemy.orm import InstanceState, Session, SessionTransaction, UOWTransaction

    from ..settings import Limits
    from .pending import Pending

Added: TypeAlias = "dict[SessionTransaction | None, Counter[str]]"
LEDGER = "_sa_outbox_ledger"
"""The attribute by which an attached entity refers to the ledger where its events wait."""


class Ledger:
    """A session's pending and written events since its root transaction began."""

    __slots__ = (
        "added",
        "by_entity",
        "by_savepoint",
        "flushed_to",
        "pending",
        "pending_bytes",
        "released",
        "writing",
        "wrote_on",
    )

    def __init__(self) -> None:
        self.pending: list[Pending] = []
        self.writing: bool = False
        self.reset()

    def reset(self) -> None:
        """A root transaction ended, one way or another: forget everything about it."""
        self.pending = []
        self.pending_bytes: int = 0
        self.wrote_on: Engine | None = None
        self.added: Added = {}
        """How many events of each type were written: by the savepoint they were written in, None
        for the root transaction. Counted only for observers."""
        self.flushed_to: dict[Engine, str] = {}
        self.released: SessionTransaction | None = None
        self.by_entity: dict[InstanceState[Any], list[Pending]] = {}
        self.by_savepoint: dict[SessionTransaction, list[Pending]] = {}

    def count(self, written: list[Pending]) -> None:
        """All of one scope were written."""
        self._count(written[0].scope, Counter(each.event.event_type for each in written))

    def _count(self, scope: SessionTransaction | None, counts: Counter[str]) -> None:
        place = scope if scope is not None and scope.nested else None
        if place in self.added:
            self.added[place].update(counts)
        else:
            self.added[place] = counts

    def hand_over(self, host: Ledger) -> None:
        """The session of *host* commits what this one wrote, later."""
        host.wrote_on, self.wrote_on = self.wrote_on, None
        if None in self.added:
            host._count(None, self.added.pop(None))

    def check_room(self, pending: Pending, limits: Limits) -> None:
        if self.pending_bytes + pending.size <= limits.max_pending_bytes:
            return
        self.put_back(self.take())  # does not count what was dropped meanwhile
        if self.pending_bytes + pending.size > limits.max_pending_bytes:
            raise PendingTooLarge(
                f"{len(self.pending):,} events with {self.pending_bytes:,} bytes wait in this "
                f"session, the limit is {limits.max_pending_bytes:,}: call flush() more often"
            )

    def add(self, pending: Pending, scope: SessionTransaction) -> None:
        state = None if pending.entity is None else inspect(pending.entity)
        pending.scope = scope
        self.pending.append(pending)
        self.pending_bytes += pending.size
        if state is not None:
            state.dict[LEDGER] = self
            self.by_entity.setdefault(state, []).append(pending)
            if scope.nested:
                self.by_savepoint.setdefault(scope, []).append(pending)
        if capture.present is not None:
            capture.present.added(pending, self)

    def take(self) -> list[Pending]:
        """Take everything pending, in the order of adding."""
        taken = [each for each in self.pending if not each.dropped]
        taken.sort(key=_order)
        self.pending = []
        self.pending_bytes = 0
        return taken

    def put_back(self, taken: list[Pending]) -> None:
        self.pending[:0] = [each for each in taken if not each.dropped]
        self.pending_bytes = sum(each.size for each in self.pending)

    def note_databases(self, session: Session, context: UOWTransaction) -> None:
        """To which engines this flush wrote data, and of which class."""
        for state, (_, only_listed) in context.states.items():
            if not only_listed:
                engine = session.get_bind(state.mapper).engine
                self.flushed_to.setdefault(engine, state.class_.__qualname__)

    def root_ended(self, root: SessionTransaction) -> None:
        """Forget everything about *root*. What a hook already added to the next transaction
        stays."""
        for state in self.by_entity:
            state.dict.pop(LEDGER, None)
        younger = [each for each in self.pending if each.scope is not root]
        self.reset()
        for each in younger:
            if each.scope is not None:
                self.add(each, each.scope)

    def __reduce__(self) -> tuple[object, ...]:
        # An entity may be pickled while its events wait here. The session stays, and so does this.
        return _nothing, ()

    def savepoint_released(self, savepoint: SessionTransaction, scope: SessionTransaction) -> None:
        """What the savepoint held now belongs to the enclosing scope."""
        for each in self.pending:
            if each.scope is savepoint:
                each.scope = scope
        if savepoint in self.added:
            self._count(scope, self.added.pop(savepoint))
        held = self.by_savepoint.pop(savepoint, None)
        if held and scope.nested:
            self.by_savepoint.setdefault(scope, []).extend(held)

    def savepoint_gone(self, savepoint: SessionTransaction) -> None:
        """The savepoint was rolled back: its events, written or not, no longer exist."""
        self.added.pop(savepoint, None)
        for each in self.by_savepoint.pop(savepoint, ()):
            each.dropped = True
        self.put_back([each for each in self.take() if each.scope is not savepoint])

    def surrender(self, state: InstanceState[Any]) -> list[Pending]:
        """Hand over the events waiting here for an entity that another session has now."""
        waiting = [each for each in self.by_entity.pop(state, ()) if each in self.pending]
        moved = [each.again() for each in waiting if not each.dropped]
        for each in waiting:
            each.dropped = True
        return moved


def _nothing() -> None:
    """What remains of a ledger in a pickled entity."""


def _order(pending: Pending) -> int:
    return pending.order
