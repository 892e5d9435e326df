"""Whether the commit of a queue's claim waits for the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import anyio
import pytest

from sa_outbox import Event, Outbox
from tests.support import comes_true

from .conftest import Consuming, Database, Producer, Running

pytestmark = pytest.mark.anyio

Claims: TypeAlias = Callable[[], list[str]]
"""What the commit of each claim was told about the disk, in their order."""

NOTE = """
CREATE TABLE claims (id bigserial, gaps jsonb, waits text);
CREATE FUNCTION note_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO claims (gaps, waits) VALUES (NEW.gaps, current_setting('synchronous_commit'));
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER note_claim AFTER INSERT ON outbox_ranges
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_claim();
"""
FORGET = "DROP TRIGGER note_claim ON outbox_ranges; DROP FUNCTION note_claim; DROP TABLE claims"


@pytest.fixture
def claims(database: Database) -> Iterator[Claims]:
    database.rows(NOTE)
    yield lambda: [row.waits for row in database.rows("SELECT waits FROM claims ORDER BY id")]
    database.rows(FORGET)


@pytest.fixture(autouse=True)
def durable_server(database: Database) -> Iterator[None]:
    """The tests' server does not wait for the disk by itself."""
    [row] = database.rows("SELECT current_database() AS name")
    database.rows(f'ALTER DATABASE "{row.name}" SET synchronous_commit = on')
    yield
    database.rows(f'ALTER DATABASE "{row.name}" RESET synchronous_commit')


async def until_none_waits(running: Running, producer: Producer, claims: Claims) -> int:
    """Add events one by one until one is claimed without waiting: each new connection of the
    consumer makes it claim durably what is in the log then. Return how many it took."""
    for added in range(1, 30):
        already = len(claims())
        producer.add(added)
        await running.done("mailer", added)
        if claims()[already:] == ["off"]:
            return added
    raise AssertionError(claims())


def queue(outbox: Outbox) -> list[int]:
    got: list[int] = []

    @outbox.listener("mailer", on="order.*", order="none")
    async def mail(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    return got


async def test_an_event_that_comes_while_the_process_is_connected_is_claimed_without_waiting(
    outbox: Outbox, producer: Producer, consuming: Consuming, claims: Claims
) -> None:
    got = queue(outbox)

    async with consuming(outbox) as running:
        await running.listening()
        added = await until_none_waits(running, producer, claims)

    assert got == list(range(1, added + 1))


async def test_an_event_that_was_there_before_the_process_is_claimed_durably(
    outbox: Outbox, producer: Producer, consuming: Consuming, claims: Claims
) -> None:
    queue(outbox)
    producer.add(1)

    async with consuming(outbox) as running:
        await running.done("mailer")

    assert claims() == ["on"]


async def test_an_event_that_was_there_when_connections_ended_is_claimed_durably(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming, claims: Claims
) -> None:
    queue(outbox)

    async with consuming(outbox) as running:
        await running.listening()
        added = await until_none_waits(running, producer, claims)
        before = claims()
        async with database.locked("outbox_ranges"):  # no claim succeeds meanwhile
            producer.add(added + 1)
            await comes_true(lambda: bool(database.waiting_backends()))
            for pid in database.backends():
                database.rows("SELECT pg_terminate_backend(:pid, 0)", pid=pid)
        await running.done("mailer", added + 1)

    assert claims() == [*before, "on"]


async def test_an_event_whose_claim_was_lost_is_handled_again_and_claimed_durably(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming, claims: Claims
) -> None:
    """As after a crash of the server that a pooler hides: the claim was never written."""
    began: list[int] = []
    go_on = anyio.Event()
    go_on.set()

    @outbox.listener("mailer", on="order.*", order="none")
    async def mail(event: Event[Any]) -> None:
        began.append(event.payload["n"])
        await go_on.wait()

    async with consuming(outbox) as running:
        await running.listening()
        await until_none_waits(running, producer, claims)
        await running.consumer.drain()
        before, stood = claims(), database.listener("mailer")
        began.clear()
        go_on = anyio.Event()
        producer.add(100)
        await comes_true(lambda: began == [100])
        database.rows(
            "UPDATE outbox_listeners SET last_processed_id = :position, revision = :revision",
            position=stood.last_processed_id,
            revision=stood.revision,
        )
        database.rows("DELETE FROM outbox_ranges")
        go_on.set()
        await comes_true(lambda: began == [100, 100])
        await running.consumer.drain()

    assert claims()[len(before) + 1 :] == ["on"]
