"""Forward through a FastStream broker object that the program already has.

One message per key is in flight at a time (``keeps_order`` is false): FastStream's clients differ
in what they promise about order. Only what the receiver has confirmed counts as sent, so
FastStream's modes without confirmation are refused: Redis channels, NATS without JetStream, Kafka
without ``acks="all"``.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import anyio

from sa_outbox.errors import ConfigError, RelayUnavailable
from sa_outbox.policy.checks import check_span

from .errors import not_serializable, unavailable
from .faststream_kinds import (
    PREFIXES,
    check_confirms,
    check_name,
    describe,
    judge,
    judge_confirmation,
    kind_of,
    publishing,
    words_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .faststream_kinds import Kind
    from .message import Answer, Message

LET_IT_END_SECONDS = 1.0
"""Seconds that a broker may take to connect after the wait for it was abandoned."""
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z:-]+")


class FastStream:
    """Forwards through *broker*: a ``KafkaBroker``, ``RabbitBroker``, ``NatsBroker`` or
    ``RedisBroker`` of FastStream.

    Kafka: ``to=`` is a topic; create the broker with ``acks="all"``. RabbitMQ: a routing key on
    *exchange*, by default the name of a queue. NATS: a subject; *stream* is required, the JetStream
    stream that takes it. Redis: a stream, or with ``redis="list"`` a list.

    If the program has not connected the broker, the relay connects and closes it; it starts no
    subscribers. *at_once* is how many messages are in flight, *timeout* limits each of them.
    """

    keeps_order = False
    takes_batches = True

    def __init__(
        self,
        broker: Any,
        *,
        exchange: Any = None,
        stream: str | None = None,
        redis: Literal["stream", "list"] = "stream",
        at_once: int = 50,
        timeout: timedelta = timedelta(seconds=10),
    ) -> None:
        self.kind: Kind = kind_of(broker)
        self.attribute_prefix: str = PREFIXES[self.kind]
        self.protocol: str = "amqp" if self.kind == "rabbit" else self.kind
        check_confirms(self.kind, broker, stream, redis)
        for name, given, kind in (("exchange", exchange, "rabbit"), ("stream", stream, "nats")):
            if given is not None and self.kind != kind:
                raise ConfigError(f"{name}= is for a {kind} broker, this one is for {self.kind}")
        if not isinstance(at_once, int) or at_once < 1:
            raise ConfigError(f"at_once must be a number above zero: {at_once!r}")
        check_span("timeout", timeout)
        self._broker = broker
        self._words = words_of(self.kind, exchange)
        self._timeout = timeout.total_seconds()
        self._at_once = at_once
        self._is_ours = False
        self._connecting = anyio.Lock()
        self._publish = publishing(self.kind, broker, exchange, stream, redis, self._timeout)

    def __repr__(self) -> str:
        return f"FastStream({self.kind})"

    def quote(self, field: str) -> str:
        """Quote a key or tenant in ``to=``: one word, where the broker has words."""
        return field if self._words is None else self._words.one(field)

    def quote_type(self, event_type: str) -> str:
        """Quote an event type in ``to=``."""
        return event_type if self._words is None else self._words.some(event_type)

    def check_destination(self, destination: str) -> None:
        check_name(self.kind, destination)

    async def send(self, messages: Sequence[Message]) -> Sequence[Answer]:
        try:
            await self._connect()
        except Exception as error:  # noqa: BLE001 - nothing was sent
            return [unavailable(describe(self.kind), error)] * len(messages)
        answers: list[Answer] = [RelayUnavailable("not sent")] * len(messages)
        room = anyio.CapacityLimiter(self._at_once)

        async def send_one(place: int, message: Message) -> None:
            async with room:
                answers[place] = await self._answer(message)

        async with anyio.create_task_group() as tasks:
            for place, message in enumerate(messages):
                tasks.start_soon(send_one, place, message)
        if any(isinstance(each, RelayUnavailable) for each in answers):
            await self.close()
        return answers

    async def close(self) -> None:
        async with self._connecting:
            # If it was started meanwhile, it is the program's: its subscribers use the connection.
            if self._is_ours and not getattr(self._broker, "running", False):
                self._is_ours = False
                with anyio.move_on_after(self._timeout, shield=True):
                    await _disconnect(self._broker)

    async def _connect(self) -> None:
        async with self._connecting:
            if getattr(self._broker, "_connection", None) is not None:
                return
            connecting = asyncio.ensure_future(self._broker.connect())
            try:
                with anyio.fail_after(self._timeout):
                    await asyncio.shield(connecting)
                self._is_ours = True
            except BaseException:
                # If interrupted, some clients leave a connection open.
                with anyio.move_on_after(LET_IT_END_SECONDS, shield=True):
                    await asyncio.wait([connecting])
                connecting.cancel()
                with anyio.move_on_after(self._timeout, shield=True):
                    await asyncio.wait([connecting])
                    await _disconnect(self._broker)
                raise

    async def _answer(self, message: Message) -> Answer:
        try:
            body, headers = bytes(memoryview(message.body)), _headers(message)
        except (TypeError, ValueError, AttributeError) as error:
            return not_serializable(message, error)
        try:
            with anyio.fail_after(self._timeout):
                said = await self._publish(body, message, headers)
        except Exception as error:  # noqa: BLE001 - the answer for this message
            return judge(self.kind, error)
        return judge_confirmation(said) if self.kind == "rabbit" else None


def _headers(message: Message) -> dict[str, str]:
    headers = {}
    for name, value in message.headers.items():
        if not _HEADER.fullmatch(name):
            raise ValueError(f"invalid header name: {name!r}")
        value.encode()
        if "\r" in value or "\n" in value:
            raise ValueError(f"header {name} has a line break")
        # What begins like this is an instruction to a NATS server.
        headers[f"x-{name}" if name.lower().startswith("nats-") else name] = value
    if message.key is not None:
        headers.setdefault("key", message.key)
    headers["content-type"] = message.content_type
    return headers


async def _disconnect(broker: Any) -> None:
    """Whatever its state, the next ``connect()`` starts anew."""
    connection: Any = getattr(broker, "_connection", None)
    with suppress(Exception):
        await broker.stop()
    if getattr(broker, "_connection", None) is not None:
        with suppress(Exception):
            await connection.close()
        broker._connection = None  # noqa: SLF001 - it says so only if its stop() succeeded
