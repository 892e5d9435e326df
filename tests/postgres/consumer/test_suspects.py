"""What is written about suspects: under the lease, and taken back by whom it speaks of."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import pytest

from sa_outbox import Event, Outbox
from sa_outbox.database.tables import Tables
from sa_outbox.observe import SuspectAttempted
from sa_outbox.sql.listener import suspects

from .conftest import ONCE, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

DIED = """
UPDATE outbox_listeners SET locked_by = 'somebody who died', lease_token = lease_token + 1,
    lease_expires_at = clock_timestamp() - interval '1 s'
"""


class Row:
    """A listener's row that other consumers have left."""

    def __init__(self, database: Database, tables: Tables) -> None:
        self._database = database
        self._tables = tables
        database.rows(
            "INSERT INTO outbox_listeners (name, lease_token, locked_by, crashes, crashed_terms,"
            """ suspects) VALUES ('billing', 9, 'x', 3, '{5, 7, 8}',"""
            """ '{"11": ["5", "7", "8"], "12": ["7"], "13": []}')"""
        )

    def run(self, statement: Any, **values: object) -> list[Any]:
        with self._database.engine.begin() as connection:
            named = {"name": "billing", "part": 0, **values}
            result = connection.execute(statement, named)
            return list(result) if result.returns_rows else []

    def lived(self, token: int) -> None:
        self.run(suspects.lived(self._tables), token=token)

    @property
    def known(self) -> tuple[int, list[int], dict[str, list[str]]]:
        row = self._database.listener("billing")
        return row.crashes, row.crashed_terms, row.suspects


@pytest.fixture
def row(database: Database, outbox: Outbox) -> Row:
    return Row(database, outbox.tables)


class TestLived:
    def test_what_was_counted_for_its_term_is_taken_back_and_nothing_else(self, row: Row) -> None:
        row.lived(7)

        assert row.known == (2, [5, 8], {"11": ["5", "8"], "12": [], "13": []})

    def test_said_twice_it_takes_back_once(self, row: Row) -> None:
        row.lived(7)
        row.lived(7)

        assert row.known == (2, [5, 8], {"11": ["5", "8"], "12": [], "13": []})

    @pytest.mark.parametrize("token", [1, 6, 9, 10])
    def test_of_a_term_for_which_nothing_was_counted_nothing_is(self, row: Row, token: int) -> None:
        before = row.known
        row.lived(token)

        assert row.known == before

    def test_crashes_that_were_forgotten_are_not_taken_back_again(
        self, row: Row, outbox: Outbox
    ) -> None:
        row.run(suspects.forget(outbox.tables), token=9)
        row.lived(7)

        assert row.known == (0, [], {})


class TestMarks:
    def test_a_term_counts_once_and_the_count_of_others_stays(
        self, row: Row, outbox: Outbox
    ) -> None:
        mark = suspects.mark(outbox.tables)
        term = {"token": 9, "old": 0, "revision": 0, "duration": 30.0, "owner": "x"}
        counts = [row.run(mark, **term, suspect=each)[0][0] for each in (12, 13, 14, 12)]

        assert counts == [2, 1, 1, 2]
        assert row.known[2]["11"] == ["5", "7", "8"]

    def test_an_older_term_marks_and_notes_nothing(self, row: Row, outbox: Outbox) -> None:
        before = row.known
        term = {"token": 8, "old": 0, "revision": 0, "duration": 30.0, "owner": "x"}

        assert row.run(suspects.mark(outbox.tables), **term, suspect=11) == []
        assert row.run(suspects.note(outbox.tables), **term, positions=[20]) == []
        assert row.known == before

    def test_what_is_noted_keeps_what_is_known_of_it(self, row: Row, outbox: Outbox) -> None:
        term = {"token": 9, "old": 0, "revision": 0, "duration": 30.0, "owner": "x"}

        assert row.run(suspects.note(outbox.tables), **term, positions=[12, 20])

        assert row.known[2] == {"11": ["5", "7", "8"], "12": ["7"], "13": [], "20": []}

    def test_of_terms_that_crashed_the_latest_are_kept(self, row: Row, database: Database) -> None:
        database.rows(
            "UPDATE outbox_listeners SET crashed_terms = ARRAY(SELECT generate_series(1, 50))"
        )
        database.rows(f"UPDATE outbox_listeners SET crashed_terms = {suspects.CRASHED.format(99)}")

        assert row.known[1] == [*range(2, 51), 99]


async def test_few_are_noted_while_they_run_and_none_afterwards(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    seen: list[set[str]] = []

    @outbox.listener("billing", on="order.*", concurrency=4, retry=ONCE)
    async def charge(event: Event[Any]) -> None:
        found = await anyio.to_thread.run_sync(database.listener, "billing")
        seen.append(set(found.suspects))
        assert str(event.position) in found.suspects
        if event.payload["n"] == 3:
            raise ValueError

    async with consuming(outbox):
        pass
    producer.add(*range(10))
    database.rows(DIED)

    async with consuming(outbox) as running:
        await running.done("billing", 9)
        await running.dead("billing")
        await running.consumer.drain()

    row = database.listener("billing")
    assert (row.crashes, row.crashed_terms, row.suspects) == (0, [], {})
    assert [each.reason for each in database.dead_letters("billing")] == ["attempts"]
    assert max(len(each) for each in seen) <= 10


async def test_a_suspect_that_is_due_goes_before_the_log_and_before_what_became_due_since(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    order: list[int] = []

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        order.append(event.payload["n"])

    async with consuming(outbox) as running:
        producer.add(1, 2, 3, delay=timedelta(hours=1), priority=0)
        await running.consumer.drain(retries=False)
    database.rows("UPDATE outbox_deliveries SET due_at = now() - interval '1 s' * position")
    database.rows("UPDATE outbox_deliveries SET priority = 9 WHERE position <> 1")
    producer.add(*range(4, 10))
    database.rows(DIED)
    database.rows("""UPDATE outbox_listeners SET crashes = 1, suspects = '{"1": [], "6": []}'""")

    async with consuming(outbox) as running:
        await running.done("billing", 9)
        await running.consumer.drain()

    assert order[0] == 1
    assert order.index(6) < order.index(2)
    careful = [each.position for each in running.recorder.of(SuspectAttempted)]
    assert careful == [1, 4, 5, 6]
    assert database.listener("billing").suspects == {}


async def test_a_suspect_that_is_gone_is_not_waited_for(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    done: list[int] = []

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        done.append(event.payload["n"])

    producer.add(1, 2)
    async with consuming(outbox) as running:
        await running.done("billing", 2)
        await running.consumer.drain()
    database.rows(DIED)
    database.rows("""UPDATE outbox_listeners SET crashes = 1, suspects = '{"1": ["1"]}'""")
    producer.add(*range(3, 40))

    async with consuming(outbox) as running:
        await running.done("billing", 37)
        await running.consumer.drain()

    assert len(running.recorder.of(SuspectAttempted)) <= 1
    assert database.listener("billing").suspects == {}
