"""Relays through the consumer: answers become outcomes, order is kept, outages cost nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import anyio
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from sa_outbox import Event, Outbox, RetryLater, RetryPolicy, SomeFailed
from sa_outbox.consumer.shared import relay_backoff
from sa_outbox.errors import ConfigError, RelayUnavailable, Undeliverable
from sa_outbox.observe import AttemptFailed, DeadLettered, RelayAway, RelayBack
from sa_outbox.relay import Answer, CloudEvents, Message, Plain
from tests.support import PATIENCE

from .conftest import Database, Producer, make_consumer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

SOON = RetryPolicy(attempts=3, base=timedelta(milliseconds=1), maximum=timedelta(milliseconds=5))


class Wire:
    """A relay to nowhere: it answers as it is told, and remembers what it took."""

    attribute_prefix = "ce-"

    def __init__(self, *, keeps_order: bool = False, takes_batches: bool = True) -> None:
        self.keeps_order = keeps_order
        self.takes_batches = takes_batches
        self.taken: list[Message] = []
        self.calls: list[int] = []
        self.answers: dict[int, list[Answer]] = {}
        """By the number in the payload: what it answers, one after the other."""
        self.away = 0
        """Calls that reach nobody."""
        self.closed = 0

    def check_destination(self, destination: str) -> None:
        if " " in destination:
            raise ConfigError(f"no destination: {destination!r}")

    async def send(self, messages: Sequence[Message]) -> Sequence[Answer]:
        self.calls.append(len(messages))
        if self.away:
            self.away -= 1
            raise RelayUnavailable("nobody is there")
        found: list[Answer] = []
        for each in messages:
            ready = self.answers.get(each.event.payload["n"])
            answer = ready.pop(0) if ready else None
            found.append(answer)
            if answer is None:
                self.taken.append(each)
        return found

    async def close(self) -> None:
        self.closed += 1

    @property
    def numbers(self) -> list[int]:
        return [each.event.payload["n"] for each in self.taken]


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_backoff, "FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(relay_backoff, "MAX_PAUSE_SECONDS", 0.016)


def relay(outbox: Outbox, wire: Wire, **options: Any) -> None:
    outbox.relay("wire", wire, **{"on": "*", "to": "orders", "retry": SOON, **options})


async def test_what_is_committed_is_forwarded(
    outbox: Outbox, producer: Producer, wire: Wire, async_engine: AsyncEngine
) -> None:
    relay(outbox, wire, envelope=CloudEvents("/shop"))
    producer.add(1, 2, 3, key="a", tenant="acme")
    consumer, _ = make_consumer(outbox, async_engine)

    await consumer.drain()

    assert wire.numbers == [1, 2, 3]
    message = wire.taken[0]
    assert message.destination == "orders"
    assert message.key == "a"
    assert message.body == b'{"n": 1}', "as PostgreSQL has it"
    assert message.headers["ce-id"] == str(message.event.event_id)
    assert message.headers["ce-subject"] == "a"
    assert message.headers["ce-sequence"] == f"{1:010d}-{message.event.position:019d}"
    assert wire.closed == 1


async def test_each_has_an_end_of_its_own(
    outbox: Outbox, producer: Producer, wire: Wire, async_engine: AsyncEngine, database: Database
) -> None:
    relay(outbox, wire)
    wire.answers = {2: [Undeliverable("too large")], 4: [RetryLater(delay=timedelta(0))] * 2}
    for number in range(1, 7):
        producer.add(number, key=f"k{number}")
    consumer, recorder = make_consumer(outbox, async_engine)

    await consumer.drain()

    assert sorted(wire.numbers) == [1, 3, 4, 5, 6], "each once"
    assert [each.reason for each in recorder.of(DeadLettered)] == ["rejected"]
    assert [each.attempt for each in recorder.of(AttemptFailed)] == [1, 1, 2]
    assert database.value("SELECT count(*) FROM outbox_deliveries") == 0


@pytest.mark.parametrize("keeps_order", [False, True])
@pytest.mark.parametrize("order", ["key", "total"])
async def test_what_comes_after_a_failure_waits_for_it(
    outbox: Outbox, producer: Producer, async_engine: AsyncEngine, order: str, keeps_order: bool
) -> None:
    wire = Wire(keeps_order=keeps_order)
    relay(outbox, wire, order=order)
    failed: Answer = ConnectionResetError("in the middle")
    # One that keeps the order sends nothing after a failure, and answers so.
    later = [failed] if keeps_order else []
    wire.answers = {3: [failed, failed], 5: [*later, *later]}
    for number in range(1, 9):
        producer.add(number, key="odd" if number % 2 else "even")
    if keeps_order:
        wire.answers |= {each: [failed, failed] for each in (4, 6, 7, 8) if order == "total"}
        wire.answers[7] = [failed, failed]
    consumer, _ = make_consumer(outbox, async_engine)

    await consumer.drain()

    if order == "total":
        assert wire.numbers == list(range(1, 9))
    else:
        assert [each for each in wire.numbers if each % 2] == [1, 3, 5, 7]
        assert [each for each in wire.numbers if not each % 2] == [2, 4, 6, 8]


async def test_a_dead_letter_holds_nothing_back(
    outbox: Outbox, producer: Producer, wire: Wire, async_engine: AsyncEngine
) -> None:
    relay(outbox, wire)
    wire.answers = {1: [Undeliverable("no")], 3: [Undeliverable("no")]}
    producer.add(1, 2, 3, 4, key="a")
    consumer, recorder = make_consumer(outbox, async_engine)

    await consumer.drain()

    assert wire.numbers == [2, 4], "and not twice"
    assert len(recorder.of(DeadLettered)) == 2


@pytest.mark.parametrize("takes_batches", [False, True])
async def test_an_outage_counts_no_attempt_and_leaves_no_row(
    outbox: Outbox,
    producer: Producer,
    async_engine: AsyncEngine,
    database: Database,
    takes_batches: bool,
) -> None:
    wire = Wire(takes_batches=takes_batches)
    relay(outbox, wire)
    wire.away = 6  # more than there are attempts
    producer.add(1, 2, 3, key="a")
    consumer, recorder = make_consumer(outbox, async_engine)

    with anyio.fail_after(PATIENCE):
        await consumer.drain()

    assert wire.numbers == [1, 2, 3]
    assert recorder.of(AttemptFailed) == []
    away = recorder.of(RelayAway)
    assert len(away) == 6
    assert [each.retry_in for each in away] == [0.001, 0.002, 0.004, 0.008, 0.016, 0.016]
    assert len(recorder.of(RelayBack)) == 1
    assert database.value("SELECT count(*) FROM outbox_deliveries") == 0


async def test_other_listeners_do_not_wait_for_it(
    outbox: Outbox, producer: Producer, wire: Wire, async_engine: AsyncEngine
) -> None:
    relay(outbox, wire)
    wire.away = 10**6
    done = anyio.Event()
    got: list[int] = []

    @outbox.listener("other", on="*")
    async def other(event: Event[Any]) -> None:
        got.append(event.payload["n"])
        if len(got) == 50:
            done.set()

    consumer, _ = make_consumer(outbox, async_engine)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consumer.run)
        for number in range(50):
            await anyio.to_thread.run_sync(producer.add, number)
        with anyio.fail_after(PATIENCE):
            await done.wait()
        consumer.stop()

    assert wire.taken == []


async def test_a_relay_that_hangs_is_one_that_is_away(
    outbox: Outbox, producer: Producer, wire: Wire, async_engine: AsyncEngine
) -> None:
    hangs = [True]

    async def send(messages: Sequence[Message]) -> Sequence[Answer]:
        if hangs:
            hangs.pop()
            await anyio.sleep_forever()
        return await Wire.send(wire, messages)

    wire.send = send  # type: ignore[method-assign]
    relay(outbox, wire, timeout=timedelta(milliseconds=50))
    producer.add(1)
    consumer, recorder = make_consumer(outbox, async_engine)

    await consumer.drain()

    assert wire.numbers == [1]
    assert [each.error for each in recorder.of(RelayAway)] == ["TimeoutError"]


async def test_how_often_a_receiver_that_is_away_is_tried_is_a_setting(
    outbox: Outbox,
    producer: Producer,
    wire: Wire,
    async_engine: AsyncEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay_backoff, "MAX_PAUSE_SECONDS", 60.0)
    wire.away = 6
    relay(outbox, wire, max_pause=timedelta(milliseconds=3))
    producer.add(1)
    consumer, recorder = make_consumer(outbox, async_engine)

    await consumer.drain()

    assert wire.numbers == [1]
    pauses = [each.retry_in for each in recorder.of(RelayAway)]
    assert pauses == [0.001, 0.002, 0.003, 0.003, 0.003, 0.003]


async def test_after_crashes_an_outage_convicts_nobody(
    outbox: Outbox, producer: Producer, wire: Wire, async_engine: AsyncEngine, database: Database
) -> None:
    relay(outbox, wire)
    wire.away = 6
    producer.add(1, 2, key="a")
    database.rows(
        "INSERT INTO outbox_listeners (name, crashes, locked_by, lease_token, lease_expires_at)"
        " VALUES ('wire', 2, 'gone', 7, now() - interval '1 minute')"
    )
    consumer, recorder = make_consumer(outbox, async_engine)

    with anyio.fail_after(PATIENCE):
        await consumer.drain()

    assert wire.numbers == [1, 2]
    assert recorder.of(DeadLettered) == []


async def test_a_handler_of_batches_says_which_ones_failed(
    outbox: Outbox, producer: Producer, async_engine: AsyncEngine
) -> None:
    seen: list[int] = []

    @outbox.listener("batches", on="*", retry=SOON)
    async def handle(events: Sequence[Event[Any]]) -> None:
        seen.extend(each.payload["n"] for each in events)
        if bad := [each.event_id for each in events if each.payload["n"] == 2]:
            raise SomeFailed(dict.fromkeys(bad, ValueError("no")))

    for number in range(4):
        producer.add(number, key=str(number))
    consumer, recorder = make_consumer(outbox, async_engine)

    await consumer.drain()

    assert sorted(seen) == [0, 1, 2, 2, 2, 3], "only that one again"
    assert len(recorder.of(DeadLettered)) == 1


class TestDeclaring:
    """Wrong arguments are refused when the program is put together."""

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"to": None}, "needs to="),
            ({"to": "two words"}, "no destination"),
            ({"to": "orders.{colour}"}, "{colour}"),
            ({"to": "{event_type} x", "on": "order.placed"}, "no destination"),
            ({"map": lambda event: event}, "no to="),
            ({"to": None, "map": lambda event: event, "envelope": Plain()}, "no envelope="),
            ({"to": None, "map": 3}, "must be a function"),
            ({"timeout": 3}, "timedelta"),
            ({"timeout": timedelta(0)}, "above zero"),
        ],
    )
    async def test_refused(
        self, outbox: Outbox, wire: Wire, options: dict[str, Any], says: str
    ) -> None:
        with pytest.raises(ConfigError, match=says):
            relay(outbox, wire, **options)
        assert "wire" not in outbox.listeners

    @pytest.mark.parametrize("given", [Wire, object(), None])
    async def test_what_is_no_relay(self, outbox: Outbox, given: Any) -> None:
        with pytest.raises(ConfigError, match="is not a relay"):
            outbox.relay("wire", given, on="*", to="orders")

    async def test_a_copy_of_the_database_does_not_run_it(self, outbox: Outbox, wire: Wire) -> None:
        relay(outbox, wire)
        assert outbox.listeners["wire"].external

    async def test_a_map_uses_an_envelope_and_says_nothing_but_event_and_destination(
        self, outbox: Outbox, producer: Producer, wire: Wire, async_engine: AsyncEngine
    ) -> None:
        """As the envelope of a relay without a map would: with the epoch of the database, and the
        prefix of the relay."""

        def choose(event: Event[Any]) -> Message | None:
            envelope = (Plain(), CloudEvents("/shop"), None)[event.payload["n"]]
            return None if envelope is None else envelope.wrap(event, "orders")

        wire.attribute_prefix = "own_"
        relay(outbox, wire, to=None, map=choose)
        producer.add(0, 1, 2)
        consumer, recorder = make_consumer(outbox, async_engine)

        await consumer.drain()

        plain, cloud = wire.taken
        assert recorder.of(AttemptFailed) == []  # None: nothing is sent for the third
        assert plain.headers["sequence"] == f"{1:010d}-{plain.event.position:019d}"
        assert cloud.headers["own_sequence"] == f"{1:010d}-{cloud.event.position:019d}"
        assert cloud.headers["own_id"] == str(cloud.event.event_id)

    async def test_a_map_that_fails_makes_a_dead_letter(
        self, outbox: Outbox, producer: Producer, wire: Wire, async_engine: AsyncEngine
    ) -> None:
        def choose(event: Event[Any]) -> Message:
            if event.payload["n"] == 1:
                raise KeyError("colour")
            if event.payload["n"] == 3:
                return "orders"  # type: ignore[return-value]
            return Message(event, "two words" if event.payload["n"] == 2 else "orders", b"")

        relay(outbox, wire, to=None, map=choose)
        producer.add(1, 2, 3, 4, key="a")
        consumer, recorder = make_consumer(outbox, async_engine)

        await consumer.drain()

        assert wire.numbers == [4]
        kinds = [each.failure.message for each in recorder.of(AttemptFailed)]
        assert "KeyError" in kinds[0]
        assert "two words" in kinds[1]
        assert "the map of relay 'wire' returned str" in kinds[2]
