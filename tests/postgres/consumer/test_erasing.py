"""``sa-outbox events erase``: one event goes everywhere, and nothing waits for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import pytest
from click.testing import CliRunner, Result
from sqlalchemy import URL

from sa_outbox import Event, Outbox
from sa_outbox.cli import main
from sa_outbox.errors import EventNotFound, NotErased
from sa_outbox.operations.erasure import Erased, erase_event
from sa_outbox.operations.operator import Operator
from sa_outbox.policy.order import Order
from tests.support import comes_true

from .conftest import LATER, ONCE, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

OPS = Operator(who="ops", why="asked for it")
LATE = 60.0
SECRET = "alice@example.com"


def erase(database: Database, outbox: Outbox, position: int, **options: Any) -> Erased:
    with database.engine.begin() as connection:
        return erase_event(connection, outbox.tables, OPS, position=position, **options)


def traces(database: Database) -> list[str]:
    """Tables in which something of the event is left."""
    return [
        row.relname
        for row in database.rows(
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relname LIKE 'outbox%'"
            " AND relnamespace = CAST('public' AS regnamespace) AND NOT relispartition"
            " ORDER BY relname"
        )
        if database.rows(
            f"SELECT FROM {row.relname} AS t WHERE CAST(t AS text) LIKE '%{SECRET}%' LIMIT 1"
        )
    ]


def add(producer: Producer, *numbers: int, **options: Any) -> None:
    with producer.open() as session:
        for number in numbers:
            session.add_event("order.placed", {"n": number, "email": SECRET}, **options)


class TestWhatGoes:
    async def test_every_copy_of_it_and_the_audit_says_who_and_why(
        self, outbox: Outbox, producer: Producer, consuming: Consuming, database: Database
    ) -> None:
        @outbox.listener("fails", on="*", retry=ONCE)
        async def fail(event: Event[Any]) -> None:
            raise ValueError(event.payload["email"])

        @outbox.listener("parks", on="*", retry=LATER)
        async def park(event: Event[Any]) -> None:
            raise ValueError(event.payload["email"])

        add(producer, 1, idempotency_key="k1")
        async with consuming(outbox) as running:
            await running.dead("fails")
            await comes_true(lambda: database.deliveries("parks"), within=LATE)
            erased = erase(database, outbox, 1)

        assert (erased.deliveries, erased.dead_letters, erased.keys) == (1, 1, 1)
        assert erased.unhandled == ("parks",)
        assert traces(database) == [], "not even in a listener's last error"
        assert database.value("SELECT count(*) FROM outbox") == 0
        assert database.deliveries("parks") == []
        assert database.dead_letters("fails") == []
        assert len(database.rows("SELECT 1 FROM outbox_idempotency_keys")) == 1
        (record,) = database.rows("SELECT * FROM outbox_audit WHERE action = 'erased'")
        assert (record.event_id, record.event_type) == (erased.event_id, "order.placed")
        assert (record.actor_type, record.actor_id) == ("operator", "ops")
        assert record.detail["why"] == "asked for it"
        assert record.detail["position"] == 1

    async def test_an_event_that_has_left_the_log_goes_from_its_dead_letters(
        self, outbox: Outbox, producer: Producer, consuming: Consuming, database: Database
    ) -> None:
        @outbox.listener("fails", on="*", retry=ONCE)
        async def fail(event: Event[Any]) -> None:
            raise ValueError("no")

        add(producer, 1)
        async with consuming(outbox) as running:
            await running.dead("fails")
        database.rows("DELETE FROM outbox")

        erased = erase(database, outbox, 1)

        assert (erased.dead_letters, erased.unhandled) == (1, ())
        assert database.dead_letters("fails") == []
        with pytest.raises(EventNotFound):
            erase(database, outbox, 1)

    async def test_its_idempotency_keys_go_when_they_are_to(
        self, outbox: Outbox, producer: Producer, database: Database
    ) -> None:
        add(producer, 1, idempotency_key="k1")

        erase(database, outbox, 1, keys=True)

        assert database.rows("SELECT 1 FROM outbox_idempotency_keys") == []

    async def test_a_dry_run_changes_nothing(
        self, outbox: Outbox, producer: Producer, database: Database
    ) -> None:
        add(producer, 1)

        assert erase(database, outbox, 1, dry_run=True).position == 1

        assert database.value("SELECT count(*) FROM outbox") == 1
        assert database.rows("SELECT 1 FROM outbox_audit WHERE action = 'erased'") == []


class TestNothingWaitsForIt:
    @pytest.mark.parametrize("order", ["total", "key", "none"])
    async def test_an_event_that_was_not_read_yet_is_passed(
        self,
        outbox: Outbox,
        producer: Producer,
        consuming: Consuming,
        database: Database,
        order: Order,
    ) -> None:
        """Also the newest: no event above it tells that its id is final."""
        got: list[int] = []

        async def handle(event: Event[Any]) -> None:
            got.append(event.payload["n"])

        outbox.listener("billing", on="*", order=order)(handle)
        async with consuming(outbox) as running:
            add(producer, 1)
            await running.consumer.drain()
        add(producer, 2, 3, 4)
        assert erase(database, outbox, 3).unhandled == ("billing",)
        erase(database, outbox, 4)

        async with consuming(outbox) as running:
            await running.consumer.drain()
            add(producer, 5)
            await comes_true(lambda: got == [1, 2, 5], within=LATE)

    async def test_those_that_wait_behind_it_go_on(
        self, outbox: Outbox, producer: Producer, consuming: Consuming, database: Database
    ) -> None:
        got: list[int] = []

        @outbox.listener("billing", on="*", retry=LATER)
        async def handle(event: Event[Any]) -> None:
            if event.payload["n"] == 1:
                raise ValueError("no")
            got.append(event.payload["n"])

        async with consuming(outbox) as running:
            add(producer, 1, 2, key="a")
            await comes_true(lambda: len(database.deliveries("billing")) == 2, within=LATE)
            erase(database, outbox, 1)
            await comes_true(lambda: got == [2], within=LATE)
            await running.consumer.drain(retries=True)

        assert database.deliveries("billing") == []

    async def test_what_a_dead_process_of_a_queue_had_taken_is_finished(
        self, outbox: Outbox, producer: Producer, consuming: Consuming, database: Database
    ) -> None:
        got: list[int] = []

        @outbox.listener("queue", on="*", order="none")
        async def handle(event: Event[Any]) -> None:
            got.append(event.payload["n"])

        async with consuming(outbox):
            pass
        add(producer, 1, 2)
        database.rows(
            "INSERT INTO outbox_ranges (listener, last_processed_id, gaps, locked_by,"
            " lease_expires_at) VALUES ('queue', 2, '[[1,1]]', 'dead', now()),"
            " ('queue', 2, '[[2,2]]', 'dead', now())"
        )
        database.rows("UPDATE outbox_listeners SET last_processed_id = 2")

        assert erase(database, outbox, 1).unhandled == ("queue",)

        async with consuming(outbox) as running:
            await running.consumer.drain()
            ranges = "SELECT 1 FROM outbox_ranges"
            await comes_true(lambda: database.rows(ranges) == [], within=LATE)
        assert got == [2]

    async def test_an_id_in_a_gap_is_in_none_any_more(
        self, outbox: Outbox, producer: Producer, database: Database
    ) -> None:
        add(producer, 1, 2, 3, 4)
        database.rows(
            "INSERT INTO outbox_listeners (name, last_processed_id, gaps, retry_position,"
            " retry_count, errors, last_error) VALUES"
            " ('billing', 4, '[[1,3]]', 2, 1, '[{\"message\": \"alice\"}]', 'alice')"
        )

        erase(database, outbox, 2)

        row = database.listener("billing")
        assert row.gaps == [[1, 1], [3, 3]]
        assert (row.retry_position, row.retry_count, row.errors) == (None, 0, [])
        assert row.last_error is None


class TestRefused:
    @pytest.mark.parametrize("order", ["total", "key", "none"])
    async def test_an_event_that_is_being_handled_is_not_erased(
        self,
        outbox: Outbox,
        producer: Producer,
        consuming: Consuming,
        database: Database,
        order: Order,
    ) -> None:
        begun, go_on = anyio.Event(), anyio.Event()

        async def handle(event: Event[Any]) -> None:
            begun.set()
            await go_on.wait()

        outbox.listener("billing", on="*", order=order)(handle)
        async with consuming(outbox) as running:
            add(producer, 1)
            with anyio.fail_after(LATE):
                await begun.wait()
            with pytest.raises(NotErased, match="billing"):
                erase(database, outbox, 1)
            assert database.value("SELECT count(*) FROM outbox") == 1
            go_on.set()
            await running.done("billing")
            await running.consumer.drain()
            await running.stop()
        assert erase(database, outbox, 1).unhandled == ()

    async def test_a_delivery_that_is_not_due_is_not_being_handled(
        self, outbox: Outbox, producer: Producer, consuming: Consuming, database: Database
    ) -> None:
        @outbox.listener("billing", on="*")
        async def handle(event: Event[Any]) -> None: ...

        async with consuming(outbox) as running:
            add(producer, 1, delay=timedelta(hours=1))
            await running.consumer.drain()
            await comes_true(lambda: database.deliveries("billing"), within=LATE)
            erase(database, outbox, 1)

        assert database.deliveries("billing") == []

    async def test_an_event_that_is_being_copied_from_the_catch_all_is_left(
        self, outbox: Outbox, producer: Producer, database: Database
    ) -> None:
        """The copy would bring it back."""
        database.rows("SELECT setval('outbox_id_seq', 5000000)")
        add(producer, 1)
        try:
            position = database.value("SELECT id FROM outbox_rest")
            database.rows(
                "CREATE TABLE outbox_p5 (LIKE outbox INCLUDING ALL, CONSTRAINT"
                " outbox_p5_range_check CHECK (id >= 5000000 AND id < 6000000))"
            )
            with pytest.raises(NotErased, match="catch-all"):
                erase(database, outbox, position)
            database.rows("DROP TABLE outbox_p5")
            erase(database, outbox, position)
        finally:
            database.rows("DROP TABLE IF EXISTS outbox_p5")

    async def test_an_event_that_nobody_knows(self, outbox: Outbox, database: Database) -> None:
        with pytest.raises(EventNotFound):
            erase(database, outbox, 12345)


class TestTheCommand:
    def run(self, url: URL, *arguments: str, given: str | None = None) -> Result:
        shown = url.set(drivername="postgresql").render_as_string(hide_password=False)
        command = ["events", "erase", *arguments, "--database-url", shown]
        return CliRunner().invoke(main, command, input=given)

    def test_it_says_who_never_gets_it_and_asks_first(
        self, outbox: Outbox, producer: Producer, database: Database, migrated_url: URL
    ) -> None:
        add(producer, 1, 2)
        database.rows("INSERT INTO outbox_listeners (name) VALUES ('billing')")
        event_id = str(database.value("SELECT event_id FROM outbox WHERE id = 2"))

        refused = self.run(migrated_url, "1", event_id, given="no\n")
        left = database.value("SELECT count(*) FROM outbox")
        done = self.run(migrated_url, "1", event_id, "--by", "ops", "--why", "x", given="erase\n")
        again = self.run(migrated_url, "1", "--yes")

        assert refused.exit_code == 1
        assert "never will be, by billing" in refused.output
        assert left == 2
        assert done.exit_code == 0, done.output
        assert f"erased event 2 (order.placed, {event_id})" in done.output
        assert database.value("SELECT count(*) FROM outbox") == 0
        assert again.exit_code == 1
        assert "no event with position 1" in again.output
        who = database.rows("SELECT actor_id FROM outbox_audit WHERE action = 'erased'")
        assert [row.actor_id for row in who] == ["ops", "ops"]

    def test_a_dry_run_says_what_would_go(
        self, outbox: Outbox, producer: Producer, database: Database, migrated_url: URL
    ) -> None:
        add(producer, 1)

        told = self.run(migrated_url, "1", "--dry-run")

        assert told.exit_code == 0
        assert "would erase event 1 (order.placed" in told.output
        assert database.value("SELECT count(*) FROM outbox") == 1
