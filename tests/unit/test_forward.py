"""Whatever a relay answers: each event has one answer, and of a key nothing overtakes a failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox import Event, RetryLater, SomeFailed
from sa_outbox.errors import ConfigError, RelayError, RelayUnavailable, Undeliverable
from sa_outbox.policy.order import Order
from sa_outbox.relay import Answer, Message
from sa_outbox.relay.forward import MAX_KNOWN, Forward

Fate = Literal["good", "later", "never", "away", "broken", "raises", "hangs", "unmade"]
SOON = 0.001
"""Seconds that a relay has; what hangs hangs for ever."""


@dataclass
class Scripted:
    """A relay that does with each message what was written for it."""

    fates: list[Fate]
    keeps_order: bool = False
    takes_batches: bool = True
    attribute_prefix: str = "ce-"
    calls: list[list[int]] = field(default_factory=list)
    answered: dict[int, Answer] = field(default_factory=dict)
    """What it said about those that it was given, also when it raised or was cancelled."""
    checked: list[str] = field(default_factory=list)
    closed: int = 0

    def check_destination(self, destination: str) -> None:
        self.checked.append(destination)
        if " " in destination:
            raise ConfigError(f"no destination: {destination!r}")

    async def send(self, messages: Sequence[Message]) -> Sequence[Answer]:
        numbers = [number(each) for each in messages]
        self.calls.append(numbers)
        fates = [self.fates[each] for each in numbers]
        if "hangs" in fates:
            self.answered |= dict.fromkeys(numbers, RelayUnavailable("cancelled"))
            await anyio.sleep_forever()
        if "raises" in fates:
            error = OSError("all of it")
            self.answered |= dict.fromkeys(numbers, error)
            raise error
        answers = [answer(each) for each in fates]
        self.answered |= dict(zip(numbers, answers, strict=True))
        return answers

    async def close(self) -> None:
        self.closed += 1

    @property
    def given(self) -> list[int]:
        return [each for call in self.calls for each in call]


def answer(fate: Fate) -> Answer:
    match fate:
        case "later":
            return RetryLater(delay=timedelta(seconds=1))
        case "never":
            return Undeliverable("no")
        case "away":
            return RelayUnavailable("nobody is there")
        case "broken":
            return ValueError("broken")
        case _:
            return None


def number(message: Message) -> int:
    found: int = message.event.payload["n"]
    return found


def make(event: Event[Any], _epoch: int = 0) -> Message:
    if event.payload["unmade"]:
        raise KeyError("colour")
    return Message(event, "orders", b"", event.key)


def forward(relay: Scripted, order: Order = "key") -> Forward:
    return Forward(relay, make, order=order, timeout=SOON)


def events_of(keys: Sequence[str | None], fates: Sequence[Fate]) -> list[Event[Any]]:
    return [
        Event("order.placed", {"n": index, "unmade": fate == "unmade"}, key=key)
        for index, (key, fate) in enumerate(zip(keys, fates, strict=True))
    ]


def answers_of(relay: Scripted, order: Order, events: list[Event[Any]]) -> list[Answer]:
    """What became of each, as the consumer is told."""

    async def handle() -> dict[Any, BaseException]:
        try:
            await forward(relay, order).all(events)
        except SomeFailed as some:
            return dict(some.errors)
        return {}

    failed = anyio.run(handle)
    assert failed.keys() <= {each.event_id for each in events}
    return [failed.get(each.event_id) for each in events]


def holds(given: Answer) -> bool:
    """What comes after it in its key may not be sent."""
    return given is not None and not isinstance(given, Undeliverable)


FATES: st.SearchStrategy[Fate] = st.sampled_from(
    [  # Most go well: else few batches would have a second wave.
        *("good", "good", "good", "good", "good", "later"),
        *("never", "away", "broken", "raises", "hangs", "unmade"),
    ]
)
BATCHES = st.lists(st.tuples(st.sampled_from([None, "a", "b", "c"]), FATES), min_size=1, max_size=9)


@given(batch=BATCHES, order=st.sampled_from(["key", "total", "none"]), keeps_order=st.booleans())
def test_every_event_has_one_answer_and_it_is_true(
    batch: list[tuple[str | None, Fate]], order: Order, keeps_order: bool
) -> None:
    keys, fates = [key for key, _ in batch], [fate for _, fate in batch]
    relay = Scripted(fates, keeps_order=keeps_order)

    answers = answers_of(relay, order, events_of(keys, fates))

    assert len(answers) == len(batch)
    assert len(set(relay.given)) == len(relay.given), "nothing is sent twice in one batch"
    for index, said in enumerate(answers):
        if fates[index] == "unmade":
            assert isinstance(said, Undeliverable)
            assert said.kind == "serialization"
            assert index not in relay.given
        elif index in relay.given:
            assert type(said) is type(relay.answered[index])
        else:
            assert holds(said), "what was not sent is not done, and is no dead letter"


@given(batch=BATCHES, order=st.sampled_from(["key", "total"]))
def test_of_a_key_nothing_is_sent_before_the_one_ahead_has_its_answer(
    batch: list[tuple[str | None, Fate]], order: Order
) -> None:
    keys, fates = [key for key, _ in batch], [fate for _, fate in batch]
    relay = Scripted(fates)

    answers = answers_of(relay, order, events_of(keys, fates))

    held: set[object] = set()
    for call in relay.calls:
        lanes = [None if order == "total" else keys[each] or each for each in call]
        assert len(set(lanes)) == len(lanes), "one of a key at a time"
        assert not held & set(lanes), "nothing after a failure"
        held |= {lane for lane, each in zip(lanes, call, strict=True) if holds(answers[each])}
    for lane in set(keys) if order == "key" else {None}:
        sent = [each for each in relay.given if order == "total" or keys[each] == lane]
        if lane is not None or order == "total":
            assert sent == sorted(sent)


@given(batch=BATCHES)
def test_while_nobody_is_there_nothing_more_is_sent(
    batch: list[tuple[str | None, Fate]],
) -> None:
    keys, fates = [key for key, _ in batch], [fate for _, fate in batch]
    relay = Scripted(fates)

    answers = answers_of(relay, "key", events_of(keys, fates))

    for at, call in enumerate(relay.calls):
        if any(isinstance(answers[each], RelayUnavailable) for each in call):
            assert at == len(relay.calls) - 1


@given(batch=BATCHES, order=st.sampled_from(["key", "total", "none"]), keeps_order=st.booleans())
def test_who_keeps_the_order_or_needs_none_gets_all_at_once(
    batch: list[tuple[str | None, Fate]], order: Order, keeps_order: bool
) -> None:
    keys, fates = [key for key, _ in batch], [fate for _, fate in batch]
    relay = Scripted(fates, keeps_order=keeps_order or order != "none")

    answers_of(relay, order if keeps_order else "none", events_of(keys, fates))

    made = [index for index, fate in enumerate(fates) if fate != "unmade"]
    assert relay.calls == ([made] if made else [])


def test_total_order_is_one_at_a_time_and_ends_with_a_failure() -> None:
    relay = Scripted(["good", "never", "good", "later", "good"])

    answers = answers_of(relay, "total", events_of([None, "a", "b", "c", "d"], relay.fates))

    assert relay.calls == [[0], [1], [2], [3]]
    assert [type(each).__name__ for each in answers] == [
        *("NoneType", "Undeliverable", "NoneType", "RetryLater", "RetryLater")
    ]


@pytest.mark.anyio
async def test_no_answer_in_time_is_nobody_there() -> None:
    events = events_of(["a"], ["good"])
    with pytest.raises(RelayUnavailable, match=r"no answer within 0\.001 s") as raised:
        await forward(Scripted(["hangs"])).one(events[0])

    assert isinstance(raised.value.__cause__, TimeoutError)


@pytest.mark.anyio
@pytest.mark.parametrize("count", [0, 1, 3])
async def test_a_relay_that_counts_wrongly_has_confirmed_nothing(count: int) -> None:
    relay = Scripted(["good", "good"], keeps_order=True)

    async def send(messages: Sequence[Message]) -> Sequence[Answer]:
        return [None] * count

    relay.send = send  # type: ignore[method-assign]
    with pytest.raises(SomeFailed) as raised:
        await forward(relay).all(events_of(["a", "b"], relay.fates))

    assert [type(each) for each in raised.value.errors.values()] == [RelayError, RelayError]


@pytest.mark.anyio
async def test_a_good_destination_is_checked_once_and_a_wrong_one_is_a_dead_letter() -> None:
    relay = Scripted(["good"] * 3, keeps_order=True)
    destinations = iter(["orders", "orders", "two words"])
    made = Forward(
        relay, lambda event, _: Message(event, next(destinations), b""), order="key", timeout=1
    )

    events = events_of(["a", "b", "c"], relay.fates)
    with pytest.raises(SomeFailed) as raised:
        await made.all(events)

    assert relay.checked == ["orders", "two words"]
    (error,) = raised.value.errors.values()
    assert isinstance(error, Undeliverable)
    assert error.kind == "unknown-destination"


@pytest.mark.anyio
async def test_destinations_are_not_remembered_without_end() -> None:
    relay = Scripted(["good"] * (MAX_KNOWN + 2), keeps_order=True)
    numbers = iter(range(MAX_KNOWN + 2))
    made = Forward(
        relay, lambda event, _: Message(event, f"d{next(numbers)}", b""), order="none", timeout=10
    )

    await made.all(events_of([None] * (MAX_KNOWN + 2), relay.fates))

    assert len(made._good) == 2


@pytest.mark.anyio
async def test_it_closes_its_relay() -> None:
    relay = Scripted([])
    await forward(relay).close()

    assert relay.closed == 1
