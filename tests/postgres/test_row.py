"""Every statement that reads events returns them with the columns that readers count on."""

from __future__ import annotations

import asyncpg
import pytest
from sqlalchemy import URL, TextClause

from sa_outbox.consumer.connection.connections import Query
from sa_outbox.database.tables import tables
from sa_outbox.event.row import COLUMNS
from sa_outbox.schema.connect import dsn_of
from sa_outbox.settings import Names
from sa_outbox.sql.log import reads
from sa_outbox.sql.queue import claims, ranges

pytestmark = pytest.mark.anyio

TABLES, ON = tables(Names()), ("order.*", "payment.done")
STATEMENTS = {
    **{
        f"{read.__name__}{' of a part' * (part is not None)}{' carefully' * carefully}": read(
            TABLES, ON, part, carefully=carefully
        )
        for read in (reads.read_final, reads.read_all, reads.read_with_gaps)
        for part in (None, (1, 4))
        for carefully in (False, True)
    },
    "first_few": reads.first_few(TABLES, ON),
    "read_due": reads.read_due(TABLES),
    "read_due of suspects": reads.read_due(TABLES, "suspects"),
    "read_due of earlier ones": reads.read_due(TABLES, "earlier"),
    "read_again": reads.read_again(TABLES),
    "read_urgent": claims.read_urgent(TABLES, ON),
    "read_chosen": claims.read_chosen(TABLES),
    "take_due": claims.take_due(TABLES),
    "ranges.read": ranges.read(TABLES, ON),
}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS.keys())
async def test_an_event_is_read_with_its_columns_in_their_order(
    statement: TextClause, migrated_url: URL
) -> None:
    connection = await asyncpg.connect(dsn_of(migrated_url))
    try:
        prepared = await connection.prepare(Query(statement).sql)
        names = [attribute.name for attribute in prepared.get_attributes()]
    finally:
        await connection.close()

    assert tuple(names[: len(COLUMNS)]) == COLUMNS
