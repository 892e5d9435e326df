"""Waking the consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import bindparam, func, select, text
from sqlalchemy.types import Text

if TYPE_CHECKING:
    from sqlalchemy import Select, TextClause

RELEASED: Final = "released"
"""Message after which consumers check which leases are free, and what is due."""
CANCEL: Final = "cancel"
"""Message after which consumers check what they are asked to cancel."""
ADOPTED: Final = "adopted"
"""Message after which consumers check whether the database is still the one they know."""


def notify(channel: str, message: str = "") -> Select[Any]:
    """Notify everyone who listens on *channel* of this database, to check for events.

    ``pg_notify``, not ``NOTIFY``: the channel is a parameter, so no name needs quoting, and upper
    case stays upper case. The *message* is empty, because a wakeup carries no data; a consumer that
    releases leases uses it to say so, so that others need not check each time.

    Send it in AUTOCOMMIT, on a connection of its own. When a transaction that notified commits,
    PostgreSQL takes one lock for the whole server and holds it until the commit is on disk: in the
    transaction that writes the events, all producers would queue behind it. Alone it writes nothing
    to disk and the lock is short.

    One meaningless row. Locks no rows, reads no table.
    """
    return select(func.pg_notify(channel, message))


def ping(channel: str) -> Select[Any]:
    """Send :message to all who listen on *channel*, to check whether one's own LISTEN receives
    it."""
    return select(func.pg_notify(channel, bindparam("message", type_=Text)))


def ping_text(channel: str, message: str) -> str:
    """SQL text that sends *message* on *channel*, without parameters. A channel is a checked name;
    the *message* is our own."""
    if not message.replace(" ", "").isalnum():
        raise ValueError("a message of letters, digits and spaces")
    return f"SELECT pg_notify('{channel}', '{message}')"


def name_connection(name: str) -> Select[Any]:
    """Set the connection's ``application_name``, which operators see in ``pg_stat_activity``.

    A statement, not a connection parameter, so that it works for every way of connecting. One row:
    the name. Locks no rows, reads no table.
    """
    return select(func.set_config("application_name", name, False))  # noqa: FBT003 - not local


def prepare_connection() -> TextClause:
    """Prepare a connection for the consumer: its :name, and READ COMMITTED. One row.

    The isolation level is changed only where the role has a different default, under which an
    UPDATE fails when it meets another one: behind a pooler, what is set here affects others as
    well.
    """
    return text(
        "SELECT set_config('application_name', :name, false),"
        " CASE WHEN current_setting('default_transaction_isolation') <> 'read committed'"
        " THEN set_config('default_transaction_isolation', 'read committed', false) END"
    )


def listening() -> TextClause:
    """The channels this connection listens on, one row each. Used to check that it is alive."""
    return text("SELECT pg_listening_channels() AS channel")
