"""What every relay must do, as tests: for ours and your own.

Derive a class whose name begins with ``Test``, implement how to create a relay and how to read what
has arrived, and let pytest with anyio or pytest-asyncio run it; or await
``RelayConformance.check()``. A check is skipped if the class does not implement what it needs.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any
from unittest import SkipTest

import anyio

from sa_outbox.errors import ConfigError, RelayUnavailable, SomeFailed, Undeliverable

from .conformance_cases import (
    Arrived,
    check,
    check_nothing_else_runs,
    check_same,
    closing,
    make_message,
    no_connections,
)
from .forward import Forward

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .message import Answer, Message, Relay


__all__ = ["Arrived", "RelayConformance"]


class RelayConformance:
    """The checks. What a subclass implements comes first."""

    time_limit: float = 15.0
    """Seconds within which the relay answers, whatever the receiver does."""
    ill_formed: Sequence[str] = ("",)
    """Invalid destinations."""
    largest_body: int = 900_000
    """Bytes that the receiver accepts at least."""
    unicode_headers: bool = True
    """Whether headers arrive with any text in them; otherwise only ASCII is sent in them."""
    secret: str = ""
    """A password that ``make_relay_to`` uses: it must be in no error text and no repr."""

    def make_relay(self) -> Relay:
        """A new relay to the system that ``arrived`` reads. Must not connect yet."""
        raise NotImplementedError

    def make_relay_to(self, host: str, port: int) -> Relay:  # noqa: ARG002 - for subclasses
        """A new relay to another address, where nobody answers; with short time limits."""
        raise SkipTest("make_relay_to is not implemented")

    async def new_destination(self) -> str:
        """A destination that exists and is empty."""
        raise NotImplementedError

    async def arrived(self, destination: str, count: int) -> Sequence[Arrived]:
        """Everything that is there, in order, as soon as there are *count* messages."""
        raise NotImplementedError

    def make_undeliverable(self, message: Message) -> Message:  # noqa: ARG002 - for subclasses
        """*message*, changed so that the receiver will never accept it: too large, or to an invalid
        destination."""
        raise SkipTest("make_undeliverable is not implemented")

    async def check(self) -> list[str]:
        """Run all checks without pytest, and return the names of those that were not skipped."""
        names = []
        for name in dir(self):
            if name.startswith("test_"):
                try:
                    await getattr(self, name)()
                except SkipTest:
                    continue
                names.append(name)
        return names

    async def test_messages_arrive_whole(self) -> None:
        async with closing(self.make_relay()) as relay:
            destination = await self.new_destination()
            key, text = (
                ("ключ-🔑", "żółć 漢字 🐘") if self.unicode_headers else ("a/b:c d", "{}[];,=")
            )
            body = '{"n":"ąß"}'.encode()
            sent = [
                make_message(relay, destination, 0, key="a", body=b"{}", note="first"),
                make_message(relay, destination, 1, key=key, body=body, note=text),
                make_message(
                    relay, destination, 2, key=None, body=bytes(range(256)), note="no key"
                ),
                make_message(relay, destination, 3, key="e", body=b"", note="empty body"),
            ]
            await self._send(relay, sent)
            check_same(sent, await self.arrived(destination, len(sent)))

    async def test_a_large_body_arrives(self) -> None:
        async with closing(self.make_relay()) as relay:
            destination = await self.new_destination()
            body = bytes(each % 251 for each in range(self.largest_body))
            sent = [
                make_message(relay, destination, 0, key="small"),
                make_message(relay, destination, 1, key="large", body=body),
                make_message(relay, destination, 2, key="large"),
            ]
            await self._send(relay, sent)
            check_same(sent, await self.arrived(destination, len(sent)))

    async def test_messages_of_a_key_arrive_in_their_order(self) -> None:
        async with closing(self.make_relay()) as relay:
            destination = await self.new_destination()
            sent = [make_message(relay, destination, n, key=f"k{n * n % 7}") for n in range(60)]
            await self._send(relay, sent)
            found = await self.arrived(destination, len(sent))
            check_same(sent, found)
            for key in {each.key for each in sent}:
                wanted = [str(each.event.event_id) for each in sent if each.key == key]
                came = list(dict.fromkeys(each.event_id for each in found if each.key == key))
                check(came == wanted, f"messages of {key!r} came in another order")

    async def test_what_is_sent_again_has_the_same_event_id(self) -> None:
        async with closing(self.make_relay()) as relay:
            destination = await self.new_destination()
            sent = [make_message(relay, destination, n, key=f"k{n}") for n in range(5)]
            await self._send(relay, sent)
            await self._send(relay, sent)
            check_same(sent, await self.arrived(destination, len(sent)))

    async def test_an_ill_formed_destination_is_refused(self) -> None:
        async with closing(self.make_relay()) as relay:
            relay.check_destination(await self.new_destination())
            for each in self.ill_formed:
                try:
                    relay.check_destination(each)
                except ConfigError:
                    continue
                raise AssertionError(f"check_destination took {each!r}")

    async def test_a_message_that_is_refused_answers_for_itself_alone(self) -> None:
        async with closing(self.make_relay()) as relay:
            destination = await self.new_destination()
            sent = [make_message(relay, destination, n, key=f"k{n}") for n in range(5)]
            bad = self.make_undeliverable(sent[2])
            answers = await self._answers(relay, [*sent[:2], bad, *sent[3:]])
            refused = answers.pop(2)
            check(isinstance(refused, Undeliverable), f"not Undeliverable: {refused!r}")
            check(answers == [None] * 4, f"the others were answered {answers}")
            good = [*sent[:2], *sent[3:]]
            check_same(good, await self.arrived(destination, len(good)))

    async def test_it_sends_again_after_close(self) -> None:
        relay = self.make_relay()
        await relay.close()
        destination = await self.new_destination()
        sent = [make_message(relay, destination, n, key="k") for n in range(3)]
        for each in sent:
            await self._send(relay, [each])
            await relay.close()
            await relay.close()
        check_same(sent, await self.arrived(destination, len(sent)))

    async def test_several_tasks_send_at_a_time(self) -> None:
        async with closing(self.make_relay()) as relay:
            destination = await self.new_destination()
            sent = [
                [make_message(relay, destination, n, key=f"{task}-{n % 3}") for n in range(20)]
                for task in range(4)
            ]
            async with anyio.create_task_group() as tasks:
                for each in sent:
                    tasks.start_soon(self._send, relay, each)
            together = [message for each in sent for message in each]
            check_same(together, await self.arrived(destination, len(together)))

    async def test_cancelled_it_leaves_nothing_running_and_sends_again(self) -> None:
        destination = await self.new_destination()
        before = asyncio.all_tasks()
        relay = self.make_relay()
        for steps in (0, 1, 2, 3, 5, 8, 13, 21, 34, 55):
            messages = [make_message(relay, destination, n, key=f"{steps}-{n}") for n in range(10)]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._answers, relay, messages)
                for _ in range(steps):
                    await anyio.sleep(0)
                tasks.cancel_scope.cancel()
        last = [make_message(relay, destination, n, key="last") for n in range(10)]
        await self._send(relay, last)
        with anyio.fail_after(self.time_limit):
            await relay.close()
        await check_nothing_else_runs(before)
        found = await self.arrived(destination, len(last))
        came = list(dict.fromkeys(each.event_id for each in found if each.key == "last"))
        check(came == [str(each.event.event_id) for each in last], "the last ones did not arrive")

    async def test_making_one_connects_to_nothing(self) -> None:
        with no_connections():
            # In a thread without an event loop: programs create relays when they are imported.
            relay = await anyio.to_thread.run_sync(self.make_relay)
        await relay.close()

    async def test_where_nobody_listens_it_is_unavailable(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        await self._check_unavailable(port)

    async def test_where_nobody_answers_it_is_unavailable(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            await self._check_unavailable(silent.getsockname()[1])

    async def _check_unavailable(self, port: int) -> None:
        destination = await self.new_destination()
        before = asyncio.all_tasks()
        relay = self.make_relay_to("127.0.0.1", port)
        message = make_message(relay, destination, 0, key="k")
        with anyio.fail_after(self.time_limit):
            try:
                (answer,) = await relay.send([message])
            except Exception as error:  # noqa: BLE001 - raising is answering
                answer = error
            await relay.close()
        check(isinstance(answer, RelayUnavailable), f"not RelayUnavailable: {answer!r}")
        rendered = f"{relay!r} {answer} {answer!r} {answer and answer.__cause__!r}"
        check(not self.secret or self.secret not in rendered, "it reveals a secret")
        await check_nothing_else_runs(before)

    async def _send(self, relay: Relay, messages: Sequence[Message]) -> None:
        answers = await self._answers(relay, messages)
        failed = [each for each in answers if each is not None]
        check(
            not failed,
            f"{len(failed)} of {len(messages)} failed: {[str(each) for each in failed[:3]]}",
        )

    async def _answers(self, relay: Relay, messages: Sequence[Message]) -> list[Answer]:
        """Call it like a listener: one message of a key after the other, if it does not keep
        order."""
        by_id = {each.event.event_id: each for each in messages}
        forward = Forward(
            relay, lambda event, _: by_id[event.event_id], order="key", timeout=self.time_limit
        )
        errors: dict[Any, BaseException] = {}
        if relay.takes_batches:
            try:
                await forward.all([each.event for each in messages])
            except SomeFailed as error:
                errors = dict(error.errors)
        else:
            for each in messages:
                try:
                    await forward.one(each.event)
                except Exception as error:  # noqa: BLE001 - its answer
                    errors[each.event.event_id] = error
        return [errors.get(each.event.event_id) for each in messages]
