"""A copy of the database: what acts on the world outside waits until it is adopted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import Engine

from sa_outbox import Event, Outbox
from sa_outbox.errors import SchemaError
from sa_outbox.observe import CopyAdopted, CopyFound, LeaseClaimed, LeaseReleased
from sa_outbox.schema.identity import adopt, find_home
from sa_outbox.settings import Names

from .conftest import Consuming, Database, Producer

pytestmark = pytest.mark.anyio

OFTEN = {"verify_interval": timedelta(milliseconds=50)}


@pytest.fixture(autouse=True)
def _home(database: Database) -> Iterator[None]:
    """The worker's database is at home again after each test."""
    meta = "SELECT epoch, system_identifier, database_oid FROM outbox_meta"
    (before,) = database.rows(meta)
    yield
    database.rows(
        "UPDATE outbox_meta SET epoch = :epoch, system_identifier = :system_identifier,"
        " database_oid = :database_oid",
        **before._mapping,
    )
    database.rows("TRUNCATE outbox_audit")


@pytest.fixture
def seen(outbox: Outbox) -> dict[str, list[int]]:
    """What each of three listeners was given: ``mails`` and the queue ``texts`` are external."""
    found: dict[str, list[int]] = {"index": [], "mails": [], "texts": []}

    @outbox.listener("index", on="order.*")
    async def index(event: Event[dict[str, int]]) -> None:
        found["index"].append(event.payload["n"])

    @outbox.listener("mails", on="order.*", external=True)
    async def mails(event: Event[dict[str, int]]) -> None:
        found["mails"].append(event.payload["n"])

    @outbox.listener("texts", on="order.*", order="none", external=True)
    async def texts(event: Event[dict[str, int]]) -> None:
        found["texts"].append(event.payload["n"])

    return found


def make_copy(database: Database, column: str = "system_identifier") -> None:
    """As if these tables had come here in a dump."""
    database.rows(f"UPDATE outbox_meta SET {column} = {column} - 1")


def adopted(engine: Engine) -> None:
    with engine.begin() as connection:
        adopt(connection, Names(), by="Ada")


@pytest.mark.parametrize("column", ["system_identifier", "database_oid"])
async def test_in_a_copy_external_listeners_wait_until_it_is_adopted_and_others_run(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    seen: dict[str, list[int]],
    column: str,
) -> None:
    producer.add(1, 2)
    make_copy(database, column)

    # With notifications, it is told of the adoption; else it looks from time to time.
    async with consuming(outbox, **({} if outbox.settings.notifies else OFTEN)) as running:
        await running.listening()
        (told,) = await running.recorder.seen(CopyFound)
        assert told.listeners == ("mails", "texts")
        assert told.command == "sa-outbox adopt"
        await running.done("index", 2)
        await running.consumer.drain()
        assert seen == {"index": [1, 2], "mails": [], "texts": []}

        adopted(database.engine)

        await running.recorder.seen(CopyAdopted)
        await running.done("mails", 2)
        await running.done("texts", 2)
    assert seen == {"index": [1, 2], "mails": [1, 2], "texts": [1, 2]}


async def test_adopting_begins_an_epoch_and_says_who_did_it(database: Database) -> None:
    make_copy(database)
    epoch = database.value("SELECT epoch FROM outbox_meta")

    adopted(database.engine)

    with database.engine.connect() as connection:
        home = find_home(connection, Names())
    assert not home.is_copy
    assert home.epoch == epoch + 1
    (record,) = database.rows("SELECT action, actor_id, detail FROM outbox_audit")
    assert (record.action, record.actor_id) == ("adopted", "Ada")
    assert record.detail["epoch"] == epoch + 1


async def test_listeners_that_run_stop_when_the_database_turns_out_to_be_a_copy(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    seen: dict[str, list[int]],
) -> None:
    async with consuming(outbox, **OFTEN) as running:
        await running.recorder.seen(LeaseClaimed, listener="mails")
        make_copy(database)
        await running.recorder.seen(CopyFound)
        await running.consumer.drain()

        producer.add(1)
        await running.done("index")
        await running.consumer.drain()

        assert seen == {"index": [1], "mails": [], "texts": []}
        await running.recorder.seen(LeaseReleased, listener="mails")


async def test_the_first_consumer_writes_down_where_the_tables_are_at_home(
    outbox: Outbox, database: Database, consuming: Consuming, seen: dict[str, list[int]]
) -> None:
    database.rows("UPDATE outbox_meta SET system_identifier = NULL")

    async with consuming(outbox) as running:
        assert running.recorder.of(CopyFound) == []

    server = database.value("SELECT system_identifier FROM pg_control_system()")
    assert database.value("SELECT system_identifier FROM outbox_meta") == server


async def test_newer_cursors_on_an_older_log_are_refused_with_what_fixes_it(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    seen: dict[str, list[int]],
) -> None:
    """A restore of a part: the sequence would draw ids again that the cursor has passed."""
    database.rows("INSERT INTO outbox_listeners (name, last_processed_id) VALUES ('index', 1000)")

    with pytest.raises(SchemaError, match="partial restore") as refused:
        async with consuming(outbox):
            pass
    (fix,) = re.findall(r"SELECT setval\(.*?\);", str(refused.value))
    database.rows(fix)

    producer.add(1)
    async with consuming(outbox) as running:
        await running.done("index")
    assert seen["index"] == [1]


async def test_a_consumer_says_for_which_queues_it_works(
    outbox: Outbox, database: Database, consuming: Consuming, seen: dict[str, list[int]]
) -> None:
    async with consuming(outbox):
        (row,) = database.rows("SELECT listeners, queues FROM outbox_consumers")
    assert (sorted(row.listeners), row.queues) == (["index", "mails"], ["texts"])
