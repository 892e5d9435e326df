"""The rights that docs/schema.md says are needed are enough."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import insert, select, text

from sa_outbox import schema
from sa_outbox.settings import Names
from sa_outbox.tables import tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

NAMES = Names(schema="events")
TABLES = tables(NAMES)
PAGE = Path(__file__).parents[2] / "docs" / "schema.md"


@pytest.fixture
def granted(connection: Connection) -> Connection:
    [grants] = re.findall(r"^```text\n(-- programs that add.*?)^```", PAGE.read_text(), re.M | re.S)
    schema.migrate(connection, NAMES)
    connection.execute(text("CREATE ROLE shop"))
    connection.execute(text("CREATE ROLE shop_consumer"))
    connection.exec_driver_sql(grants)
    return connection


def add(connection: Connection) -> None:
    row = {"event_id": uuid.uuid4(), "event_type": "t", "payload": {}}
    connection.execute(insert(TABLES.outbox).values(row).inline())


def test_a_program_that_adds_events_can(granted: Connection) -> None:
    granted.execute(text("SET LOCAL ROLE shop"))

    assert schema.problems(granted, NAMES) == []
    add(granted)


def test_a_consumer_can_read_the_log_and_change_everything_else(granted: Connection) -> None:
    granted.execute(text("SET LOCAL ROLE shop_consumer"))

    assert schema.problems(granted, NAMES) == []
    add(granted)
    assert granted.execute(select(TABLES.outbox)).all()
    for table in TABLES.metadata.tables.values():
        if table is not TABLES.outbox:
            granted.execute(table.delete())
