"""The private parts of SQLAlchemy that the hooks can't do without.

All of them are here, so that a SQLAlchemy release that moves one breaks one module.
``tests/postgres/test_sqlalchemy_internals.py`` has a test for each.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import Connection, event
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.orm.session import SessionTransactionState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy.engine import Engine

_CONNECTING = SessionTransactionState.PROVISIONING_CONNECTION
_PREPARE = SessionTransaction._prepare_impl.__name__  # noqa: SLF001 - see the module's docstring
_COMMIT = "_commit_impl"


def autobegin(session: Session) -> SessionTransaction:
    """Begin like ``Session.add``. The public ``begin()`` would make a later ``begin()`` fail."""
    return session._autobegin_t()  # noqa: SLF001 - see the module's docstring


def scope_of(trans: SessionTransaction) -> SessionTransaction:
    """The savepoint or root that decides whether what is done in *trans* is kept."""
    while not trans.nested and trans.parent is not None:
        trans = trans.parent
    return trans


def current_scope(session: Session) -> SessionTransaction | None:
    trans = session._transaction  # noqa: SLF001 - see the module's docstring
    return None if trans is None else scope_of(trans)


@contextmanager
def within(session: Session, trans: SessionTransaction) -> Iterator[None]:
    """Work in *trans*, although a savepoint below it is already being created.

    The SAVEPOINT itself is sent with the savepoint's first statement. Everything in this block,
    including lazy loads of a callable, still runs before it. If the block fails, so does
    ``begin_nested``, and the savepoint must not stay behind as the session's current transaction.
    """
    current = session._transaction  # noqa: SLF001 - see the module's docstring
    session._transaction = trans  # noqa: SLF001
    yield
    session._transaction = current  # noqa: SLF001


def is_flushing(session: Session) -> bool:
    return session._flushing  # noqa: SLF001 - see the module's docstring


@contextmanager
def looking_like_a_flush(session: Session) -> Iterator[None]:
    """Make routers of the documented kind, which check ``_flushing``, choose the writer."""
    was = session._flushing  # noqa: SLF001 - see the module's docstring
    session._flushing = True  # noqa: SLF001
    try:
        yield
    finally:
        session._flushing = was  # noqa: SLF001


def takes_work(trans: SessionTransaction) -> bool:
    """Not committed, prepared, rolled back or closed; also true while it gets its connection."""
    return trans.is_active or is_connecting(trans)


def is_connecting(trans: SessionTransaction) -> bool:
    """In an ``after_begin`` hook: no statement can be sent."""
    return trans._state is _CONNECTING  # noqa: SLF001 - see the module's docstring


def state_of(trans: SessionTransaction) -> str:
    return trans._state.name.lower()  # noqa: SLF001 - see the module's docstring


def is_committing(session: Session) -> bool:
    """A commit or release is in progress and has not reached its COMMIT yet.

    Read from SQLAlchemy's own state machine, not from a flag of ours: a flag would still be set
    after a commit that a hook refused.
    """
    trans = session._transaction  # noqa: SLF001 - see the module's docstring
    while trans is not None:
        current = trans._current_fn  # noqa: SLF001
        if current is not None and current.__name__ == _PREPARE:
            return True
        trans = trans.parent
    return False


def is_past_the_flush(session: Session) -> bool:
    """Whether we are in a commit, past the flush that would write an event: perhaps in a user's
    hook that runs after ours, so that nothing else would write it.

    A flush that still has data in the session has not reached our hook yet.
    """
    if not is_committing(session):
        return False
    return not is_flushing(session) or is_clean(session)


def is_called_by_a_commit(session: Session) -> bool:
    """A commit is in progress, as in ``is_committing``, even while a connection is being made,
    which hides the commit from that function."""
    frame = sys._getframe()  # noqa: SLF001 - asked only in after_begin hooks that add events
    while frame is not None:
        trans = frame.f_locals.get("self") if frame.f_code.co_name == _PREPARE else None
        if isinstance(trans, SessionTransaction) and trans.session is session:
            return True
        frame = frame.f_back  # type: ignore[assignment]  # None at the outermost
    return False


def is_clean(session: Session) -> bool:
    """Nothing to flush."""
    return session._is_clean()  # noqa: SLF001 - see the module's docstring


def connection_for(session: Session, bind: Engine | Connection) -> Connection:
    """The connection of the current scope, as ``session.connection`` returns it.

    Usually the preceding flush has it already, and going through the flush's own transaction would
    cost as much as everything else done for an event.
    """
    trans = session._transaction  # noqa: SLF001 - see the module's docstring
    if trans is not None and trans.is_active:
        taken = scope_of(trans)._connections.get(bind)  # noqa: SLF001
        if taken is not None:
            return taken[0]
    return session.connection(bind_arguments={"bind": bind})


def guard_commit(connection: Connection, check: Callable[[Connection], None]) -> None:
    """Call *check* before each COMMIT that SQLAlchemy sends on *connection*. It raises to refuse.

    That is what the event ``commit`` is for, but a connection that has one event looks for all of
    them with every statement, for 20 microseconds each.
    """
    commit = getattr(connection, _COMMIT, None)
    if commit is None:
        event.listen(connection, "commit", check)
        return

    def commit_if_allowed() -> None:
        check(connection)
        commit()

    connection.__dict__[_COMMIT] = commit_if_allowed


def unguard_commit(connection: Connection) -> None:
    connection.__dict__.pop(_COMMIT, None)


def savepoints_of(connection: Connection) -> list[str]:
    """The names of the savepoints that the connection is in, the innermost first."""
    names, nested = [], connection.get_nested_transaction()
    while nested is not None:
        names.append(nested._savepoint)  # noqa: SLF001 - see the module's docstring
        nested = nested._previous_nested  # noqa: SLF001
    return names


def may_use_several_binds(session: Session) -> bool:
    """False for the usual session, which uses one engine or connection for everything."""
    return (
        session.bind is None
        or bool(getattr(session, "binds", True))  # not in the first releases of 2.1
        or type(session).get_bind is not Session.get_bind
    )


def is_autocommit(connection: Connection) -> bool:
    level = connection.get_execution_options().get("isolation_level")
    if level is None:
        level = getattr(connection.dialect, "_on_connect_isolation_level", None)
    if level is not None:
        return bool(level == "AUTOCOMMIT")
    # Set behind SQLAlchemy's back, by connect_args or a creator.
    return bool(getattr(connection.connection.dbapi_connection, "autocommit", False))
