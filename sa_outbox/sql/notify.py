"""Waking the consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, func, select, text
from sqlalchemy.types import Text

if TYPE_CHECKING:
    from sqlalchemy import Select, TextClause


def notify(channel: str, message: str = "") -> Select[Any]:
    """Tell everybody who listens on *channel* of this database to look again.

    ``pg_notify`` and not ``NOTIFY``: the channel is a parameter, so no name needs quoting, and
    upper case stays upper case. The *message* is empty, because a wakeup carries no data; a
    consumer that gives leases back says so in it, so that others need not ask each time.

    Send it in AUTOCOMMIT, on a connection of its own. At the commit of a transaction that notified,
    PostgreSQL takes one lock for the whole server and holds it until the commit is on disk: in the
    transaction that writes the events, every producer would queue up behind it. Alone it writes
    nothing to disk and the lock is short.

    One row without meaning. Locks no rows, reads no table.
    """
    return select(func.pg_notify(channel, message))


def ping(channel: str) -> Select[Any]:
    """Send :message to all who listen on *channel*: to see whether one's own LISTEN hears it."""
    return select(func.pg_notify(channel, bindparam("message", type_=Text)))


def ping_text(channel: str, message: str) -> str:
    """The same without parameters. A channel is a checked name; the *message* is our own."""
    if not message.replace(" ", "").isalnum():
        raise ValueError("a message of letters, digits and spaces")
    return f"SELECT pg_notify('{channel}', '{message}')"


def name_connection(name: str) -> Select[Any]:
    """Set the connection's ``application_name``, which operators see in ``pg_stat_activity``.

    A statement and not a parameter of the connection, so that it works for every way of
    connecting. One row: the name. Locks no rows, reads no table.
    """
    return select(func.set_config("application_name", name, False))  # noqa: FBT003 - not local


def prepare_connection() -> TextClause:
    """Make a connection fit for the consumer: its :name, and READ COMMITTED. One row.

    The isolation is touched only where the role has another default, under which an UPDATE fails
    that meets another one: behind a pooler, what is set here is set for others as well.
    """
    return text(
        "SELECT set_config('application_name', :name, false),"
        " CASE WHEN current_setting('default_transaction_isolation') <> 'read committed'"
        " THEN set_config('default_transaction_isolation', 'read committed', false) END"
    )


def listening() -> TextClause:
    """The channels this connection listens on, one row each. Asked to see whether it is alive."""
    return text("SELECT pg_listening_channels()")
