"""Whatever a relay answers, the other side has each key's events once and in their order.

The relay of this test never loses an answer. So nothing may arrive twice, and what is neither there
nor a dead letter is lost.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta

import anyio
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from sa_outbox import Outbox, RetryLater, RetryPolicy
from sa_outbox.consumer.shared import relay_backoff
from sa_outbox.errors import RelayUnavailable, Undeliverable
from sa_outbox.relay import Answer, Message
from tests.support import PATIENCE

from .conftest import Database, Producer, make_consumer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

EVENTS = 120
SOON = RetryPolicy(attempts=1000, base=timedelta(0), maximum=timedelta(milliseconds=3))


class Moody:
    attribute_prefix = ""

    def __init__(self, chance: random.Random, *, keeps_order: bool, takes_batches: bool) -> None:
        self.keeps_order = keeps_order
        self.takes_batches = takes_batches
        self.arrived: list[Message] = []
        self.refused: list[Message] = []
        self._chance = chance

    def check_destination(self, destination: str) -> None:
        pass

    async def send(self, messages: Sequence[Message]) -> Sequence[Answer]:
        await anyio.sleep(0)
        chance = self._chance
        if chance.random() < 0.1:
            raise RelayUnavailable("away")
        answers: list[Answer] = []
        broken: Answer = None
        for each in messages:
            answer: Answer = None if broken is None else broken
            if broken is None:
                kinds: list[Answer] = [None] * 20
                kinds += [RetryLater(delay=timedelta(0)), OSError("reset"), RelayUnavailable("x")]
                answer = chance.choice(kinds)
                if each.event.payload["n"] % 17 == 0:
                    answer = Undeliverable("never")
                    self.refused.append(each)
            if answer is None:
                self.arrived.append(each)
            elif self.keeps_order and not isinstance(answer, Undeliverable):
                broken = answer
            answers.append(answer)
        return answers

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("takes_batches", [True, False], ids=["batches", "one_by_one"])
@pytest.mark.parametrize("keeps_order", [True, False], ids=["keeps_order", "keeps_none"])
@pytest.mark.parametrize("order", ["key", "total", "none"])
async def test_each_key_arrives_once_and_in_order(
    database: Database,
    producer: Producer,
    outbox: Outbox,
    async_engine: AsyncEngine,
    monkeypatch: pytest.MonkeyPatch,
    order: str,
    keeps_order: bool,
    takes_batches: bool,
    seed: int,
) -> None:
    monkeypatch.setattr(relay_backoff, "FIRST_PAUSE_SECONDS", 0.0001)
    monkeypatch.setattr(relay_backoff, "MAX_PAUSE_SECONDS", 0.001)
    chance = random.Random(seed)
    relay = Moody(chance, keeps_order=keeps_order, takes_batches=takes_batches)
    concurrency = 1 if order == "total" else chance.choice([1, 3])
    outbox.relay(
        "wire",
        relay,
        on="*",
        to="orders",
        order=order,  # type: ignore[arg-type]
        retry=SOON,
        batch_size=chance.choice([1, 7, 500]),
        concurrency=concurrency,
    )
    keys: list[str | None] = ["a", "b", "c", "d", None]
    for number in range(EVENTS):
        producer.add(number, key=chance.choice(keys))
    consumer, _ = make_consumer(outbox, async_engine)

    with anyio.fail_after(2 * PATIENCE):
        await consumer.drain()

    numbers = [each.event.payload["n"] for each in relay.arrived]
    assert sorted(numbers) == [each for each in range(EVENTS) if each % 17], "each once"
    assert len(database.dead_letters("wire")) == len(range(0, EVENTS, 17))
    assert len(relay.refused) == len(range(0, EVENTS, 17)), "nobody is asked again"
    by_key: defaultdict[str | None, list[int]] = defaultdict(list)
    for each in relay.arrived:
        by_key[each.key].append(each.event.payload["n"])
    if order == "total":
        assert numbers == sorted(numbers)
    if order == "key":
        assert all(by_key[key] == sorted(by_key[key]) for key in keys if key is not None)
    assert database.value("SELECT count(*) FROM outbox_deliveries") == 0
