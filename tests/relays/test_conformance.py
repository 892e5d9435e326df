"""The checks for relays pass a good one, and find what is wrong with a bad one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest

from sa_outbox.errors import ConfigError, RelayUnavailable, Undeliverable
from sa_outbox.relay import Answer, Message
from sa_outbox.relay.conformance import Arrived, RelayConformance

pytestmark = pytest.mark.anyio


class Shelves:
    """A relay that does everything right."""

    keeps_order = True
    takes_batches = True
    attribute_prefix = "ce-"

    def __init__(self, shelves: dict[str, list[Message]], address: tuple[str, int] | None) -> None:
        self.shelves = shelves
        self.address = address

    def check_destination(self, destination: str) -> None:
        if not destination.isidentifier():
            raise ConfigError(f"no shelf: {destination!r}")

    async def send(self, messages: Sequence[Message]) -> Sequence[Answer]:
        if self.address is not None:
            raise RelayUnavailable("nobody is there")
        return [await self.put(each) for each in messages]

    async def put(self, message: Message) -> Answer:
        await anyio.sleep(0)
        if message.destination not in self.shelves:
            return Undeliverable("no such shelf", kind="unknown-destination")
        self.shelves[message.destination].append(message)
        return None

    async def close(self) -> None:
        pass


class Checks(RelayConformance):
    ill_formed = ("", "two words")
    secret = "swordfish"
    time_limit = 1.0
    largest_body = 1000

    def __init__(self, relay: type[Shelves] = Shelves) -> None:
        self._shelves: dict[str, list[Message]] = {}
        self._relay = relay

    def make_relay(self) -> Shelves:
        return self._relay(self._shelves, None)

    def make_relay_to(self, host: str, port: int) -> Shelves:
        return self._relay(self._shelves, (host, port))

    def make_undeliverable(self, message: Message) -> Message:
        return replace(message, destination="nowhere")

    async def new_destination(self) -> str:
        self._shelves[name := f"shelf{len(self._shelves)}"] = []
        return name

    async def arrived(self, destination: str, count: int) -> Sequence[Arrived]:
        return [
            Arrived(str(each.event.event_id), each.body, each.key, each.headers)
            for each in self._shelves[destination]
        ]


class OneByOne(Shelves):
    keeps_order = False
    takes_batches = False


class Loses(Shelves):
    async def put(self, message: Message) -> Answer:
        return None if message.event.payload["n"] == 2 else await super().put(message)


class Reverses(Shelves):
    async def send(self, messages: Sequence[Message]) -> Sequence[Answer]:
        return list(await super().send(list(reversed(messages))))[::-1]


class DropsHeaders(Shelves):
    async def put(self, message: Message) -> Answer:
        return await super().put(replace(message, headers={}))


class DropsKeys(Shelves):
    async def put(self, message: Message) -> Answer:
        return await super().put(replace(message, key=None))


class Truncates(Shelves):
    async def put(self, message: Message) -> Answer:
        return await super().put(replace(message, body=message.body[:500]))


class TakesAnyName(Shelves):
    def check_destination(self, destination: str) -> None:
        pass


class RefusesAll(Shelves):
    async def send(self, messages: Sequence[Message]) -> Sequence[Answer]:
        answers = await super().send(messages)
        return [*answers] if not any(answers) else [next(filter(None, answers))] * len(answers)


class SaysYes(Shelves):
    async def put(self, message: Message) -> Answer:
        await super().put(message)
        return None


class ConnectsAtOnce(Shelves):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        with socket.create_server(("127.0.0.1", 0)) as door, socket.socket() as made:
            made.connect(door.getsockname())


class ClosesForEver(Shelves):
    closed = False

    async def put(self, message: Message) -> Answer:
        return RuntimeError("closed") if self.closed else await super().put(message)

    async def close(self) -> None:
        self.closed = True


class LeavesTasks(Shelves):
    tasks: list[asyncio.Task[Any]]

    async def put(self, message: Message) -> Answer:
        self.tasks = [*getattr(self, "tasks", []), asyncio.create_task(anyio.sleep_forever())]
        return await super().put(message)


class Hangs(Shelves):
    async def send(self, messages: Sequence[Message]) -> Sequence[Answer]:
        if self.address is not None:
            await anyio.sleep_forever()
        return await super().send(messages)


class Blames(Shelves):
    async def send(self, messages: Sequence[Message]) -> Sequence[Answer]:
        if self.address is not None:
            raise Undeliverable("nobody is there")
        return await super().send(messages)


class Tells(Shelves):
    def __repr__(self) -> str:
        return "Tells('://me:swordfish@h')"


ALL = {name for name in dir(RelayConformance) if name.startswith("test_")}


@pytest.mark.parametrize("relay", [Shelves, OneByOne])
async def test_a_good_relay_passes_all_of_them(relay: type[Shelves]) -> None:
    assert set(await Checks(relay).check()) == ALL


async def test_what_a_class_does_not_give_is_skipped() -> None:
    class Fewer(Checks):
        make_relay_to = RelayConformance.make_relay_to  # type: ignore[assignment]
        make_undeliverable = RelayConformance.make_undeliverable

    skipped = ALL - set(await Fewer().check())

    assert skipped == {
        "test_a_message_that_is_refused_answers_for_itself_alone",
        "test_where_nobody_listens_it_is_unavailable",
        "test_where_nobody_answers_it_is_unavailable",
    }


@pytest.mark.parametrize(
    ("relay", "check"),
    [
        (Loses, "test_messages_arrive_whole"),
        (DropsHeaders, "test_messages_arrive_whole"),
        (DropsKeys, "test_messages_arrive_whole"),
        (Truncates, "test_a_large_body_arrives"),
        (Reverses, "test_messages_of_a_key_arrive_in_their_order"),
        (TakesAnyName, "test_an_ill_formed_destination_is_refused"),
        (RefusesAll, "test_a_message_that_is_refused_answers_for_itself_alone"),
        (SaysYes, "test_a_message_that_is_refused_answers_for_itself_alone"),
        (ClosesForEver, "test_it_sends_again_after_close"),
        (ConnectsAtOnce, "test_making_one_connects_to_nothing"),
        (LeavesTasks, "test_cancelled_it_leaves_nothing_running_and_sends_again"),
        (Hangs, "test_where_nobody_answers_it_is_unavailable"),
        (Blames, "test_where_nobody_listens_it_is_unavailable"),
        (Tells, "test_where_nobody_listens_it_is_unavailable"),
    ],
)
async def test_a_bad_relay_is_found_out(relay: type[Shelves], check: str) -> None:
    run: Callable[[], Any] = getattr(Checks(relay), check)
    before = asyncio.all_tasks()

    with pytest.raises((AssertionError, TimeoutError)):
        await run()

    for each in asyncio.all_tasks() - before:
        each.cancel()
