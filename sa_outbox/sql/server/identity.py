"""Which database this is, and which one the tables were last adopted in.

A dump carries ``outbox_meta`` along, and with it the identity of the database it was taken from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, insert, select, text, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import BigInteger, Text

from .names import quoted

if TYPE_CHECKING:
    from sqlalchemy import Insert, Select, TextClause, Update

    from sa_outbox.database.tables import Tables


def stored(tables: Tables) -> Select[Any, Any, Any]:
    """epoch, system_identifier and database_oid, as they were written. One row; locks nothing."""
    c = tables.meta.c
    return select(c.epoch, c.system_identifier, c.database_oid)


def present() -> TextClause:
    """The database's name and oid, the role, and may_read: whether it may query the server's
    identifier. One row of the catalogs."""
    return text(
        """
        SELECT CAST(current_database() AS text) AS database, CAST(current_user AS text) AS role,
            CAST(oid AS bigint) AS database_oid,
            coalesce(has_function_privilege(
                to_regprocedure('pg_catalog.pg_control_system()'), 'EXECUTE'), false) AS may_read
        FROM pg_catalog.pg_database WHERE datname = current_database()
        """
    )


def system_identifier() -> TextClause:
    """The identifier that initdb gave this server. A separate statement: the right to call the
    function is checked when the statement begins, even behind a CASE that never reaches it."""
    return text("SELECT system_identifier FROM pg_catalog.pg_control_system()")


def remember(tables: Tables) -> TextClause:
    """Write :system_identifier if it is not known yet and the role may. Then locks the one row."""
    return text(
        f"""
        UPDATE {quoted(tables.meta)} SET system_identifier = :system_identifier
        WHERE system_identifier IS NULL
        """
    ).bindparams(bindparam("system_identifier", type_=BigInteger))


def adopt(tables: Tables) -> Update:
    """Make :system_identifier and :database_oid the tables' home, and start a new epoch; returns
    its number. Locks the one row."""
    meta = tables.meta
    return (
        update(meta)
        .values(
            system_identifier=bindparam("system_identifier"),
            database_oid=bindparam("database_oid"),
            epoch=meta.c.epoch + 1,
        )
        .returning(meta.c.epoch)
    )


def record_adopted(tables: Tables) -> Insert:
    """Who adopted the copy: ``actor_id`` and ``detail``."""
    return (
        insert(tables.audit)
        .values(
            action="adopted",
            actor_type="user",
            actor_id=bindparam("actor_id", type_=Text),
            detail=bindparam("detail", type_=JSONB),
        )
        .inline()
    )
