"""Which engine or connection of a session the outbox's statements go to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import UnboundExecutionError

from ..errors import ConfigError
from . import internals

if TYPE_CHECKING:
    from sqlalchemy import Table
    from sqlalchemy.engine import Connection, Engine
    from sqlalchemy.orm import Session


def bind_of(session: Session, clause: Any, log: Table) -> Engine | Connection:
    """Where *clause* goes; if the session does not say, where *log* is.

    Raises :class:`ConfigError` if the session has no bind for either.
    """
    with internals.looking_like_a_flush(session):
        try:
            return session.get_bind(clause=clause)
        except UnboundExecutionError:
            try:
                return session.get_bind(clause=log)
            except UnboundExecutionError as unbound:
                raise _no_bind(session, log) from unbound


def check_binds(session: Session, log: Table) -> None:
    """Raise now what writing would raise, for a session with ``binds=`` and no ``bind=``.

    One with neither may get its engine later.
    """
    if session.bind is None and getattr(session, "binds", None):
        bind_of(session, log, log)


def _no_bind(session: Session, log: Table) -> ConfigError:
    others = "binds= for other tables, but none" if getattr(session, "binds", None) else "no engine"
    return ConfigError(
        f"the session has {others} for the outbox's table {log.fullname!r}, so its events can't be "
        "written. Make it with binds={..., outbox.tables.outbox: engine}, with the engine of the "
        "data that the events are about; or with bind=engine, for all tables without one. Nothing "
        "of the outbox was written"
    )
