"""Where the tables are: resolved once, when a consumer starts.

From then on every statement names the schema. Whatever a handler does to ``search_path``, in its
transaction or its connection, does not affect where it is settled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_outbox.database.names import FoundNames
from sa_outbox.database.tables import tables
from sa_outbox.sql.server.catalog import schema_of

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncEngine

    from sa_outbox.database.tables import Tables
    from sa_outbox.settings import Names

_TRICKS = frozenset("\"':\\%")
"""Characters that would need escaping in textual statements."""


async def locate(engine: AsyncEngine, names: Names) -> Tables:
    """The tables with the schema in which a new connection of *engine* finds them."""
    if names.schema is not None:
        return tables(names)

    def ask(connection: Connection) -> str | None:
        found: str | None = connection.scalar(schema_of([names.table("meta"), names.table()]))
        return found

    async with engine.connect() as connection:
        schema = await connection.run_sync(ask)
    if schema is None or _TRICKS & set(schema):
        return tables(names)
    channel = names.notify_channel
    return tables(FoundNames(schema=schema, prefix=names.prefix, channel=channel))
