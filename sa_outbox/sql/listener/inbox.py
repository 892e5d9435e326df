"""Statements on the inbox: which messages of other systems were processed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.types import Double, Text

from ..server.timed_text import now_or, text
from ..server.times import NOW

if TYPE_CHECKING:
    from sqlalchemy.sql.dml import ReturningInsert

    from ...database.tables import Tables


def mark_received(tables: Tables) -> ReturningInsert[str]:
    """Mark the message (:consumer, :message_id) as received for :lifetime seconds.

    A row if this transaction is the first to do so, none if another one was. Two transactions with
    one message meet on its row: the second waits until the first has committed (none) or rolled
    back (a row). An expired mark counts as missing, and is renewed. In REPEATABLE READ and
    SERIALIZABLE, a mark that the snapshot does not see is a serialization error (40001).

    Locks the row until the transaction ends, even when it returns none. Served by the primary key.
    """
    inbox = tables.inbox
    expiry = text(f"{NOW} + make_interval(secs => :lifetime)")
    mark = insert(inbox).values(
        consumer=bindparam("consumer", type_=Text),
        message_id=bindparam("message_id", type_=Text),
        expires_at=expiry.bindparams(bindparam("lifetime", type_=Double)),
    )
    return mark.on_conflict_do_update(
        index_elements=[inbox.c.consumer, inbox.c.message_id],
        set_={
            "received_at": mark.excluded.received_at,
            "expires_at": mark.excluded.expires_at,
        },
        # By the time at which the statement was run. A row that came while we waited expires after
        # that.
        where=inbox.c.expires_at <= now_or(mark.excluded.received_at),
    ).returning(inbox.c.message_id)
