"""Payload filters: a listener with ``where`` gets the events that have these fields, and no others
cost it anything. On every order, and on every way an event is read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, get_args

import pytest
from sqlalchemy import URL

from sa_outbox import Event, Outbox
from sa_outbox.consumer.fault.refusals import Reads
from sa_outbox.consumer.queue import selection, urgency
from sa_outbox.errors import ConfigError
from sa_outbox.observe import BatchRead, RangeTaken
from sa_outbox.operations import sealing
from sa_outbox.operations.listeners import rewind_listener
from sa_outbox.operations.operator import Operator
from sa_outbox.policy.order import Order
from tests.support import comes_true
from tests.support.receiver import LOCAL, endpoints_command, receiving, secret_of

from .conftest import LATER, ONCE, Consuming, Database, Producer, make_consumer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

ORDERS = pytest.mark.parametrize("order", get_args(Order))
USER = {"kind": "user"}
PAYLOADS = {
    "text": '{"kind": "user"}',
    "other text": '{"kind": "User"}',
    "more fields": '{"n": 1, "kind": "user", "tags": ["a"]}',
    "an integer": '{"kind": 1}',
    "the same number": '{"kind": 1.0}',
    "a large number": '{"kind": 12345678901234567890.10}',
    "true": '{"kind": true}',
    "null": '{"kind": null}',
    "no such field": '{"n": 1}',
    "deeper": '{"kind": {"of": "user", "n": 1}}',
    "a name with a dot": '{"kind.of": "user"}',
    "an odd name": '{"\\" \\\\ \\u00fc %s :where": 1}',
    "a list": '{"kind": ["user"]}',
    "in a list": '[{"kind": "user"}]',
    "a list at the top": '["kind", "user"]',
    "text at the top": '"kind"',
    "a number at the top": "1",
    "null at the top": "null",
}
CASES: list[tuple[dict[str, Any], set[str]]] = [
    (USER, {"text", "more fields"}),
    ({"kind": "user", "n": 1}, {"more fields"}),
    ({"kind": 1}, {"an integer", "the same number"}),
    ({"kind": 12345678901234567890.10}, set()),
    ({"kind": True}, {"true"}),
    ({"kind": None}, {"null"}),
    ({"kind": {"of": "user"}}, {"deeper"}),
    ({"kind.of": "user"}, {"a name with a dot"}),
    ({'" \\ ü %s :where': 1}, {"an odd name"}),
    ({"kind": "us%"}, set()),
]


def add(producer: Producer, *kinds: str, **options: Any) -> None:
    """Events in one transaction: ``{"n": number, "kind": kind}``."""
    with producer.open() as session:
        for n, kind in enumerate(kinds, 1):
            session.add_event("order.placed", {"n": n, "kind": kind}, **options)


def listen(outbox: Outbox, order: Any = "key", name: str = "billing", **options: Any) -> list[int]:
    got: list[int] = []

    @outbox.listener(name, on="order.*", order=order, **{"where": USER, **options})
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    return got


async def test_a_filter_compares_fields_as_json_does_and_raises_for_no_payload(
    outbox: Outbox, database: Database, consuming: Consuming
) -> None:
    got: dict[int, set[str]] = {}
    for number, (where, _) in enumerate(CASES):

        @outbox.listener(f"l{number}", on="*", where=where, order=("key", "none")[number % 2])
        async def note(event: Event[Any], number: int = number) -> None:
            got.setdefault(number, set()).add(str(event.headers["which"]))

    for which, payload in PAYLOADS.items():
        database.rows(
            "INSERT INTO outbox (event_id, event_type, payload, headers) SELECT"
            " gen_random_uuid(), 'a', CAST(:payload AS jsonb), CAST(:headers AS jsonb)",
            payload=payload,
            headers=json.dumps({"which": which}),
        )

    async with consuming(outbox) as running:
        await running.consumer.drain()

    assert got == {number: wanted for number, (_, wanted) in enumerate(CASES) if wanted}


@pytest.mark.parametrize(
    ("order", "partitions"), [("key", 1), ("key", 3), ("total", 1), ("none", 1)]
)
async def test_no_handler_is_called_for_an_event_that_a_filter_leaves_out(
    order: Any,
    partitions: int,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
) -> None:
    """Of a backlog, of what comes while it waits, and of what a transaction commits late."""
    got = listen(outbox, order, partitions=partitions)
    add(producer, "user", "bot", "user", "bot")

    async with consuming(outbox) as running:
        await running.listening()
        assert sorted(got) == [1, 3]
        got.clear()

        add(producer, "bot", "user")
        await comes_true(lambda: got == [2])

        got.clear()
        with producer.open() as late:
            for n, kind in enumerate(("bot", "user"), 7):
                late.add_event("order.placed", {"n": n, "kind": kind})
            late.flush()
            add(producer, "user", "bot")
            if order != "total":
                await comes_true(lambda: got == [1])
        await comes_true(lambda: sorted(got) == [1, 8])
        await running.consumer.drain()
        read = sum(each.events for each in running.recorder.of(BatchRead))
        claimed = [each.events for each in running.recorder.of(RangeTaken)]

    assert (read or sum(each or 0 for each in claimed)) == 5
    rows = database.rows("SELECT last_processed_id, gaps FROM outbox_listeners")
    assert [(row.last_processed_id, row.gaps) for row in rows] == [(10, [])] * partitions


async def test_one_read_for_all_offers_each_listener_what_meets_its_filter(
    outbox: Outbox, producer: Producer, consuming: Consuming, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a notification nobody reads for itself, filter or not."""
    users, bots = listen(outbox, name="users"), listen(outbox, name="bots", where={"kind": "bot"})
    everything, queue = listen(outbox, name="all", where=None), listen(outbox, "none", name="queue")

    async with consuming(outbox) as running:
        await running.listening()
        await running.consumer.drain()  # what they read when they start is over
        alone: list[int] = []
        read = Reads.rows

        async def note(self: Reads, *queries: Any, **values: Any) -> Any:
            alone.append(values["cursor"])
            return await read(self, *queries, **values)

        monkeypatch.setattr(Reads, "rows", note)
        # What others do on the server may keep one round from being final at once, not ten.
        for _ in range(10):
            for each in (users, bots, everything, queue, alone):
                each.clear()
            add(producer, "user", "bot", "user")
            await comes_true(lambda: (users, bots, queue) == ([1, 3], [2], [1, 3]))
            await comes_true(lambda: everything == [1, 2, 3])
            await running.consumer.drain()
            if not alone:
                break
        assert alone == []


class TestOfAQueue:
    async def test_a_range_has_only_events_that_meet_the_filter(
        self, outbox: Outbox, producer: Producer, consuming: Consuming
    ) -> None:
        got = listen(outbox, "none")
        add(producer, *(["bot"] * 40 + ["user"]) * 3)

        async with consuming(outbox) as running:
            await running.consumer.drain()
            ranges = running.recorder.of(RangeTaken)

        assert len(got) == 3
        assert sum(each.events or 0 for each in ranges) == 3

    async def test_many_that_are_left_out_are_passed_in_steps_that_are_saved(
        self,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        for module in (urgency, selection):
            monkeypatch.setattr(module, "PASSED_OVER", 20)
        got = listen(outbox, "none", batch_size=10)
        add(producer, *["bot"] * 105, "user")

        with database.counting_writes("billing") as written:
            async with consuming(outbox) as running:
                await running.done("billing")
            writes = written()

        assert got == [106]
        assert writes > 3

    async def test_urgent_ones_that_are_left_out_do_not_keep_others_waiting(
        self,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
    ) -> None:
        """More of them than a range has: each is examined once."""
        got = listen(outbox, "none", batch_size=2)
        add(producer, *["user"] * 30)
        add(producer, *["bot"] * 30, priority=9)
        add(producer, "bot", "user", priority=5)

        async with consuming(outbox) as running:
            await running.consumer.drain()

        assert len(got) == 31
        assert 2 in got[:12], "the urgent one came before most others"
        row = database.listener("billing")
        assert (row.last_processed_id, row.gaps) == (62, [])

    async def test_tenants_take_turns_among_what_meets_the_filter(
        self, outbox: Outbox, producer: Producer, consuming: Consuming
    ) -> None:
        got = listen(outbox, "none", batch_size=2)
        add(producer, *["user"] * 200, tenant="large")
        add(producer, *["bot"] * 20, tenant="small")
        add(producer, "user", tenant="small")
        with producer.open() as session:
            session.add_event("order.placed", {"n": 0, "kind": "user"}, tenant="small")

        async with consuming(outbox) as running:
            await running.consumer.drain()

        assert len(got) == 202
        assert got.index(0) < 100


class TestAfterwards:
    """A filter is for events that are read for the first time."""

    async def test_what_waits_comes_whatever_the_filter_says_by_then(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        @outbox.listener("billing", on="order.*", retry=LATER, where=USER)
        async def fail(event: Event[Any]) -> None:
            raise ValueError("no")

        add(producer, "user", "bot", key="a")
        add(producer, "user", "bot", key="b", delay=timedelta(hours=1))
        async with consuming(outbox) as running:
            await comes_true(lambda: len(database.deliveries("billing")) == 2)
        states = [(each.position, each.state) for each in database.deliveries("billing")]
        assert states == [(1, "parked"), (3, "scheduled")]

        changed = Outbox(notify="on")
        got = listen(changed, where={"kind": "bot"})
        database.rows("UPDATE outbox_deliveries SET due_at = clock_timestamp()")
        async with consuming(changed) as running:
            await running.done("billing", 2)

        assert got == [1, 1]

    async def test_a_changed_filter_applies_from_the_cursor_onwards_and_after_a_rewind_to_all(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        listen(outbox)
        add(producer, "user", "bot")
        async with consuming(outbox) as running:
            await running.consumer.drain()

        recorded = "SELECT payload_filter, ordering, event_types, tenant FROM outbox_listeners"
        assert database.rows(recorded) == [({"kind": "user"}, "key", ["order.*"], None)]
        changed = Outbox(notify="on")
        got = listen(changed, where={"kind": "bot"})
        add(producer, "user", "bot", "bot")
        async with consuming(changed) as running:
            await running.consumer.drain()
            assert got == [2, 3]
        assert database.rows(recorded) == [({"kind": "bot"}, "key", ["order.*"], None)]
        with database.engine.begin() as connection:
            rewind_listener(connection, changed.tables, "billing", Operator(who="me"), to=1)
        async with consuming(changed) as running:
            await running.consumer.drain()

        assert got == [2, 3, 2, 2, 3]


class TestWhatIsLeftOut:
    async def test_has_no_status_for_that_listener_and_can_not_be_cancelled_for_it(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        listen(outbox, "none", name="queue")
        listen(outbox)
        listen(outbox, "none", name="later")
        with producer.open() as session:
            bot = session.add_event("order.placed", {"n": 1, "kind": "bot"}).event_id
            user = session.add_event("order.placed", {"n": 2, "kind": "user"}).event_id
        consumer, _ = make_consumer(outbox, database.engine.url, listeners=["queue", "billing"])
        await consumer.drain()

        with database.engine.begin() as connection:
            of_bot = outbox.status(connection, bot).listeners
            of_user = outbox.status(connection, user).listeners
            cancelled = outbox.cancel(connection, bot)
            with pytest.raises(ConfigError, match="leaves this event out"):
                outbox.cancel(connection, bot, listener="queue")
            with pytest.raises(ConfigError, match="leaves this event out"):
                outbox.wait(database.engine, bot, listener="queue")
            assert outbox.cancel(connection, user) == {
                "queue": "done",
                "billing": "ordered",
                "later": "unknown",
            }

        assert dict(of_bot) == {}
        assert {name: each.state for name, each in of_user.items()} == {
            "queue": "succeeded",
            "billing": "succeeded",
            "later": "pending",
        }
        assert cancelled == {}
        assert database.rows("SELECT * FROM outbox_deliveries") == []


POISON = """
CREATE FUNCTION refusing(jsonb) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF $1 ? 'refuses' THEN RAISE 'not readable' USING ERRCODE = 'data_corrupted'; END IF;
    RETURN CAST(CAST($1 AS json) AS text);
END $$;
CREATE FUNCTION refusing(jsonb, jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF $1 ? 'refuses' THEN RAISE 'not readable' USING ERRCODE = 'data_corrupted'; END IF;
    RETURN jsonb_contains($1, $2);
END $$;
CREATE CAST (jsonb AS text) WITH FUNCTION refusing(jsonb);
UPDATE pg_operator SET oprcode = CAST('refusing(jsonb,jsonb)' AS regprocedure)
WHERE oprcode = CAST('jsonb_contains(jsonb,jsonb)' AS regprocedure)
"""
HEALTHY = """
UPDATE pg_operator SET oprcode = CAST('jsonb_contains(jsonb,jsonb)' AS regprocedure)
WHERE oprname = '@>' AND oprleft = CAST('jsonb' AS regtype);
DROP CAST (jsonb AS text);
DROP FUNCTION refusing(jsonb);
DROP FUNCTION refusing(jsonb, jsonb)
"""


@pytest.fixture
def poisoned(database: Database) -> Iterator[Database]:
    """A payload with "refuses" can be read by nothing: neither as text nor by a filter."""
    database.rows(POISON)
    yield database
    database.rows(HEALTHY)


@ORDERS
async def test_a_payload_that_can_not_be_compared_is_a_dead_letter_and_the_others_are_delivered(
    order: Any,
    outbox: Outbox,
    producer: Producer,
    poisoned: Database,
    consuming: Consuming,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Far behind the first that meet the filter, and urgent, and among tenants that take turns."""
    monkeypatch.setattr(urgency, "FAIR_SHARE", 10.0)
    got = listen(outbox, order, batch_size=5, retry=ONCE)
    add(producer, "user", tenant="a")
    add(producer, *["bot"] * 30, tenant="b")
    poisoned.write_raw(payload="""'{"refuses": 1}'""")
    poisoned.write_raw(payload="""'{"refuses": 2}'""", priority="5")
    poisoned.write_raw(payload="""'{"refuses": 3}'""", event_type="'mail.sent'")
    add(producer, *["user"] * 12, tenant="a")

    async with consuming(outbox) as running:
        await running.dead("billing", 2)
        await running.done("billing", 13)

    assert len(got) == 13
    assert [each.position for each in poisoned.dead_letters("billing")] in ([32, 33], [33, 32])


async def test_an_endpoint_gets_what_meets_its_filter_and_its_list_shows_it(
    outbox: Outbox,
    producer: Producer,
    consuming: Consuming,
    migrated_url: URL,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = migrated_url.set(drivername="postgresql").render_as_string(hide_password=False)
    monkeypatch.setenv("SA_OUTBOX_DATABASE_URL", url)
    monkeypatch.setenv(sealing.VARIABLE, sealing.new_key())
    outbox.webhooks(allow=LOCAL, ports="any")
    async with receiving() as receiver:
        given = ["add", "acme", receiver.url, "--on", "*", "--where"]
        secret = await secret_of(await endpoints_command(*given, '{"kind": "user"}'))
        wrong = [await endpoints_command(*given, each) for each in ("{", "[]", '{"tags": []}')]
        listed = await endpoints_command("list")
        async with consuming(outbox) as running:
            await running.listening()
            add(producer, "bot", "user", "bot", "user")
            await comes_true(lambda: receiver.numbers(secret) == [2, 4])

    assert [each.exit_code for each in wrong] == [2, 2, 2]
    assert '{"kind": "user"}' in listed.output
