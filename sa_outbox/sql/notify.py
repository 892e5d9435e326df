"""Waking the consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

if TYPE_CHECKING:
    from sqlalchemy import Select


def notify(channel: str) -> Select[Any]:
    """Tell everybody who listens on *channel* of this database to look again.

    ``pg_notify`` and not ``NOTIFY``: the channel is a parameter, so no name needs quoting, and
    upper case stays upper case. The message is empty, because a wakeup carries no data.

    Send it in AUTOCOMMIT, on a connection of its own. At the commit of a transaction that notified,
    PostgreSQL takes one lock for the whole server and holds it until the commit is on disk: in the
    transaction that writes the events, every producer would queue up behind it. Alone it writes
    nothing to disk and the lock is short.

    One row without meaning. Locks no rows, reads no table.
    """
    return select(func.pg_notify(channel, ""))


def name_connection(name: str) -> Select[Any]:
    """Set the connection's ``application_name``, which operators see in ``pg_stat_activity``.

    A statement and not a parameter of the connection, so that it works for every way of
    connecting. One row: the name. Locks no rows, reads no table.
    """
    return select(func.set_config("application_name", name, False))  # noqa: FBT003 - not local
