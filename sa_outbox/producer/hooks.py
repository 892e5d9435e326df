"""The eight session events that write an event exactly when its data is written.

The rule: **pending events behave like** ``session.new``. Adding one begins the transaction; flush,
commit and ``begin_nested`` write them; rolling back or closing their scope discards them. So an
event's row is written next to the row it describes, and whatever decides about one (a savepoint, a
Core savepoint, an external transaction) decides about the other.

Two rules keep this true in unusual orders of calls: an event is written only while its own scope is
the innermost one, and an event that was not written yet follows an entity that leaves the session.

``tests/postgres/test_each_hook_is_needed.py`` shows, for each hook, what breaks without it.
"""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import event as sqlalchemy_event
from sqlalchemy.orm import object_session

from ..errors import TransactionEnded
from ..observe import EventsAdded
from . import internals
from .entity import SLOT, check_recorded, give_back
from .install import not_installed, owner_of
from .ledger import LEDGER, Ledger

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.engine import Engine
    from sqlalchemy.orm import InstanceState, Session, SessionTransaction, UOWTransaction

    from ..observe import Observers
    from ..settings import Settings
    from .pending import Pending
    from .write import Writer

log: logging.Logger = logging.getLogger("sa_outbox")

HOOKS: Final = (
    "after_attach",
    "after_flush_postexec",
    "before_commit",
    "after_transaction_create",
    "after_transaction_end",
    "after_commit",
    "pending_to_transient",
    "persistent_to_transient",
)
_RAW: Final = frozenset({"after_attach", "pending_to_transient", "persistent_to_transient"})
_numbers = itertools.count(1)


class Hooks:
    """The hooks of one outbox. Their state is per session; none of it is global.

    They run in every transaction, so each starts with one check whether there is anything to do.
    The ledger is an attribute of its session: ``session.info`` would have to be created first.
    """

    def __init__(
        self,
        owner: object,
        writer: Writer,
        settings: Settings,
        poke: Callable[[Engine], None] | None,
        observers: Observers,
    ) -> None:
        """*poke* wakes the consumers; None: they poll."""
        self._owner = owner
        self._writer = writer
        self._limits = settings.limits
        self._admission = settings.admission
        self._poke = poke
        self._observers = observers
        self._classes: set[type[Session]] = set()
        self._ledger_name = f"_sa_outbox_ledger_{next(_numbers)}"
        # Kept: event.contains() and event.remove() identify a bound method by identity.
        self._functions = {name: getattr(self, name) for name in HOOKS}

    def listen_on(self, cls: type[Session]) -> None:
        """Install the hooks on *cls*. Calling it again has no effect."""
        for name, function in self._functions.items():
            if not sqlalchemy_event.contains(cls, name, function):
                sqlalchemy_event.listen(cls, name, function, raw=name in _RAW)
        self._classes.add(cls)

    def are_on(self, cls: type[Session]) -> bool:
        return any(each in self._classes for each in cls.__mro__)

    def ledger_of(self, session: Session) -> Ledger | None:
        return getattr(session, self._ledger_name, None)

    def add(self, session: Session, pending: Pending) -> None:
        """Add *pending* to the session's current scope."""
        if type(session) not in self._classes and not self.are_on(type(session)):
            raise not_installed(type(session))
        if self._admission is not None:
            self._admission.admit(pending.event, is_deferred=pending.is_deferred)
        if session.bind is None:
            self._writer.check_binds(session)
        # Like Session.add: without a transaction, close() and rollback() would not be noticed.
        trans = internals.autobegin(session)
        if not internals.takes_work(trans):
            raise TransactionEnded(
                f"the session's transaction is {internals.state_of(trans)}, an event added now "
                "would never be written. Nothing was added"
            )
        is_connecting, scope = internals.is_connecting(trans), internals.scope_of(trans)
        is_past_the_flush = internals.is_past_the_flush(session)
        ledger = self._ledger(session)
        if is_connecting:
            _refuse_too_late(session, ledger)
        ledger.check_room(pending, self._limits)
        ledger.add(pending, scope)
        if is_past_the_flush and not ledger.writing:
            self._write_now(session, ledger)

    def has_pending(self, session: Session) -> bool:
        ledger = self.ledger_of(session)
        return ledger is not None and bool(ledger.pending)

    def write(self, session: Session) -> None:
        """Write what is pending, if anything is."""
        if (ledger := self.ledger_of(session)) is not None and ledger.pending:
            self._write(session, ledger)

    # The hooks, in the order a transaction meets them.

    def after_attach(self, session: Session, state: InstanceState[Any]) -> None:
        """An object was attached to the session: take the events recorded on it.

        Fires for add, cascades and re-attaching, not for loads. The object is already in the
        session: events that are refused stay with it, and its INSERT is refused too.
        """
        attributes = state.obj().__dict__  # the object is being added, so it exists
        if (SLOT in attributes or LEDGER in attributes) and owner_of(session) is self._owner:
            check_recorded(attributes, self._admission)
            self._welcome(session, state)

    def after_flush_postexec(self, session: Session, context: UOWTransaction) -> None:
        """The data is written: write the events. Not ``after_flush``, where a new object has no
        identity yet and its lazy loads are empty."""
        ledger: Ledger | None = getattr(session, self._ledger_name, None)
        if internals.may_use_several_binds(session):
            ledger = self._ledger(session)
            ledger.note_databases(session, context)
            if ledger.wrote_on is not None:
                self._writer.refuse_two_databases(session, ledger)
        if ledger is not None and ledger.pending:
            self._write(session, ledger)

    def before_commit(self, session: Session) -> None:
        """Write what no flush has written; committing a clean session does not flush at all."""
        ledger = getattr(session, self._ledger_name, None)
        if ledger is not None and ledger.pending:
            self._write_now(session, ledger)

    def after_transaction_create(self, session: Session, trans: SessionTransaction) -> None:
        """A savepoint begins: pending events belong to the enclosing scope, so write them there.

        Otherwise they would come after the savepoint's events.
        """
        if not trans.nested or internals.is_flushing(session) or trans.parent is None:
            return
        ledger = self.ledger_of(session)
        if ledger is not None and ledger.pending:
            with internals.within(session, trans.parent):
                self._write(session, ledger)

    def after_commit(self, session: Session) -> None:
        """A savepoint was released, or the transaction is durable: wake the consumers.

        Must not raise, block or touch the session: an error here would leave the connection checked
        out, and the transaction is committed anyway.
        """
        ledger = getattr(session, self._ledger_name, None)
        if ledger is None:
            return
        savepoint = session.get_nested_transaction()
        if savepoint is not None:
            ledger.released = savepoint
            return
        late = [each.event.event_type for each in ledger.pending if not each.dropped]
        if late:
            log.error("events added too late in a commit were not written: %s", late)
        if ledger.wrote_on is None:
            return
        host: Session | None = getattr(session, "outbox_host", None)
        if host is not None:
            ledger.hand_over(self._ledger(host))
        else:
            if self._poke is not None:
                self._poke(ledger.wrote_on)
            if counts := ledger.added.get(None):
                self._observers.emit(EventsAdded(dict(counts)))
            ledger.wrote_on, ledger.added = None, {}

    def after_transaction_end(self, session: Session, trans: SessionTransaction) -> None:
        """A scope ended. If it was released, its events move to the enclosing scope; otherwise they
        are discarded.

        The only hook that fires for commit, rollback, ``close``, ``reset``, ``invalidate`` and for
        a ROLLBACK that itself failed.
        """
        ledger = getattr(session, self._ledger_name, None)
        if ledger is None:
            return
        if trans.parent is not None and not trans.nested:
            return  # a flush's own transaction
        if ledger.released is trans and trans.parent is not None:
            ledger.savepoint_released(trans, internals.scope_of(trans.parent))
            return
        _let_go(session, ledger, trans)
        if trans.nested:
            ledger.savepoint_gone(trans)
        else:
            ledger.root_ended(trans)

    def pending_to_transient(self, session: Session, state: InstanceState[Any]) -> None:
        """A new object was expunged or rolled back: its events wait for its next ``add``."""
        if (ledger := self.ledger_of(session)) is not None and ledger.by_entity:
            for pending in ledger.by_entity.pop(state, ()):
                if not pending.dropped:
                    give_back(pending)

    def persistent_to_transient(self, session: Session, state: InstanceState[Any]) -> None:
        """A flushed new object was rolled back. ``add`` will INSERT it again, with its events."""
        self.pending_to_transient(session, state)

    def _ledger(self, session: Session) -> Ledger:
        ledger = self.ledger_of(session)
        if ledger is None:
            ledger = Ledger()
            setattr(session, self._ledger_name, ledger)
        return ledger

    def _welcome(self, session: Session, state: InstanceState[Any]) -> None:
        """Take the events that wait in the object, or for it in a session it has left."""
        ledger = self._ledger(session)
        waiting: list[Pending] = state.dict.pop(SLOT, [])
        elsewhere: Ledger | None = state.dict.get(LEDGER)
        if elsewhere is not None and elsewhere is not ledger:
            waiting = [*elsewhere.surrender(state), *waiting]
        if not waiting:
            return
        trans = internals.autobegin(session)
        for pending in waiting:
            ledger.add(pending, internals.scope_of(trans))
        # A new object causes a flush; a stored one may not.
        if state.key is not None and internals.is_past_the_flush(session) and not ledger.writing:
            self._write(session, ledger)

    def _write_now(self, session: Session, ledger: Ledger) -> None:
        # Flush the data first. Two transactions that change the same row meet on it, and the second
        # draws its event's id after the first has committed: that is what keeps a key's events in
        # order. The commit would flush by itself, but a flush that only drops orphans fires no
        # hook. The price: later before_commit hooks find the session already flushed.
        if not internals.is_flushing(session):
            session.flush()
        if ledger.pending:
            self._write(session, ledger)

    def _write(self, session: Session, ledger: Ledger) -> None:
        if ledger.flushed_to:
            self._writer.refuse_two_databases(session, ledger)
        self._writer.write_pending(session, ledger)


def _refuse_too_late(session: Session, ledger: Ledger) -> None:
    """In an ``after_begin`` triggered by a commit's hook, the event can't be written at once, and
    perhaps none of our hooks runs again."""
    if ledger.writing or internals.is_flushing(session):
        return
    if internals.is_called_by_a_commit(session):
        raise TransactionEnded(
            "an after_begin hook added an event too late in a commit for it to be written. "
            "Nothing was added"
        )


def _let_go(session: Session, ledger: Ledger, scope: SessionTransaction) -> None:
    """A scope ends uncommitted. Its events go with it, except those of entities that live on: an
    expunged entity keeps its change, and so its event; and SQLAlchemy calls none of our hooks for a
    new object that was deleted and rolled back, which can be added again."""
    for each in ledger.pending:
        if each.entity is None or each.scope is not scope or each.dropped:
            continue
        if object_session(each.entity) is not session:
            give_back(each)
    for state, events in ledger.by_entity.items():
        if state.was_deleted and state.transient:
            for each in events:
                if not each.dropped:
                    give_back(each)
