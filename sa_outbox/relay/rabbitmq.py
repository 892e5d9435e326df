"""To RabbitMQ: each message is confirmed by the broker, and routed to a queue, or it is an error.

A broker confirms what it can route nowhere, and drops it: so every message is mandatory. It closes
a channel for one wrong message, and does not say for which: so exchanges are looked for before.
"""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio

from sa_outbox.errors import ConfigError, RelayError, RelayUnavailable, Undeliverable

from .answering import because, missing, not_serializable, too_large, unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .message import Answer, Message

LONGEST_NAME = 255
"""Bytes of a routing key, and of an exchange: the protocol has one byte for it."""
LONGEST_HEADERS = 100_000
"""Bytes: they have to fit into one frame, and a broker ends the connection of who sends more."""
_LIMIT = re.compile(r"larger than (?:configured )?max size (\d+)")


class RabbitMQ:
    """Sends to an exchange of RabbitMQ. ``to=`` is the routing key.

    With *exchange* ``""``, RabbitMQ's default, the routing key is the name of a queue. With None,
    ``to=`` names both: ``"exchange/routing.key"``. *timeout* limits connecting, and each wave.
    """

    keeps_order = False
    takes_batches = True
    attribute_prefix = "cloudEvents_"

    def __init__(
        self,
        url: str,
        *,
        exchange: str | None = "",
        max_message_bytes: int = 16 * 1024 * 1024,
        timeout: timedelta = timedelta(seconds=10),
    ) -> None:
        try:
            import aio_pika  # noqa: PLC0415 - of an extra
            import aiormq  # noqa: PLC0415 - of the same
        except ImportError as error:
            raise missing("RabbitMQ", "rabbitmq") from error
        try:
            parts = urlsplit(url)
            good = parts.scheme in ("amqp", "amqps") and parts.hostname
            self._where = f"{parts.hostname}:{parts.port or 5672}{parts.path}"
        except (AttributeError, TypeError, ValueError):
            good = False
        if not good:
            # Without the address: there may be a password in it.
            raise ConfigError(
                "the URL of RabbitMQ must be like amqp://host:5672/vhost, or amqps://"
            )
        if exchange is not None and not _is_name(exchange):
            raise ConfigError(f"exchange of RabbitMQ has at most 255 bytes: {exchange!r}")
        if timeout <= timedelta(0):
            raise ConfigError(f"timeout of RabbitMQ must be above zero: {timeout!r}")
        self._pika: Any = aio_pika
        self._rmq: Any = aiormq
        self._url = url
        self._exchange = exchange
        self._most = max_message_bytes
        self._timeout = timeout.total_seconds()
        self._connection: Any = None
        self._channel: Any = None
        self._known: set[str] = {""}
        """Exchanges that were there."""
        self._opening: anyio.Lock | None = None

    def __repr__(self) -> str:
        return f"RabbitMQ({self._where!r})"

    def check_destination(self, destination: str) -> None:
        """Refuse what is no routing key, or no exchange with one."""
        if not isinstance(destination, str):
            raise ConfigError(f"a routing key is text: {destination!r}")
        if self._exchange is None and "/" not in destination:
            raise ConfigError(f'a destination is "exchange/routing.key": {destination!r}')
        exchange, key = self._split(destination)
        if not _is_name(exchange) or not _is_name(key):
            raise ConfigError(
                f"exchange and routing key have at most 255 bytes each: {destination[:80]!r}"
            )
        if exchange == "" and key == "":
            raise ConfigError("on the default exchange the routing key is the name of a queue")

    async def send(self, messages: Sequence[Message]) -> Sequence[Answer]:
        """Publish *messages* together, and wait for the broker's confirmations."""
        answers: list[Answer] = [None] * len(messages)
        ready: dict[int, tuple[str, str, bytes, Any]] = {}
        for place, message in enumerate(messages):
            made = self._make(message)
            if isinstance(made, Undeliverable):
                answers[place] = made
            else:
                ready[place] = made
        try:
            with anyio.fail_after(self._timeout):
                channel = await self._opened()
                gone = await self._missing({each[0] for each in ready.values()})
        except Exception as error:  # noqa: BLE001 - before anything was sent, so nobody is to blame
            await self._drop()
            failed = self._away(error)
            return [failed if place in ready else answers[place] for place in range(len(messages))]
        for place in [place for place, each in ready.items() if each[0] in gone]:
            text = f"there is no exchange {ready.pop(place)[0]!r}"
            answers[place] = Undeliverable(text, kind="unknown-destination")
        for place, refused in (await self._publish(channel, ready)).items():
            answers[place] = self._judge(messages[place], refused)
        return answers

    async def close(self) -> None:
        """Close the connection."""
        await self._drop()

    def _split(self, destination: str) -> tuple[str, str]:
        if self._exchange is not None:
            return self._exchange, destination
        exchange, _, key = destination.partition("/")
        return exchange, key

    def _make(self, message: Message) -> tuple[str, str, bytes, Any] | Undeliverable:
        """Exchange, routing key, body and properties."""
        headers = dict(message.headers)
        if message.key is not None:
            headers.setdefault("key", message.key)
        try:
            _check_headers(headers)
            body = bytes(message.body)
        except (TypeError, ValueError) as error:
            return not_serializable(message, error)
        if len(body) > self._most:
            return too_large(message, len(body), self._most)
        event = message.event
        properties = self._rmq.spec.Basic.Properties(
            content_type=message.content_type,
            headers=headers,
            delivery_mode=2,  # kept on disk, in a queue that is durable
            message_id=str(event.event_id),
            timestamp=event.created_at,
            message_type=event.event_type,
        )
        return *self._split(message.destination), body, properties

    async def _opened(self) -> Any:
        if self._opening is None:
            self._opening = anyio.Lock()
        async with self._opening:
            if self._connection is None or self._connection.is_closed:
                self._channel = None
                self._connection = await self._pika.connect(self._url, timeout=self._timeout)
            if self._channel is None or self._channel.is_closed:
                channel = self._connection.channel(on_return_raises=True)
                await channel.initialize()
                # The one below: its messages need not wait for each other to be written.
                self._channel = await channel.get_underlay_channel()
            return self._channel

    async def _missing(self, exchanges: Iterable[str]) -> set[str]:
        """Those that do not exist; each is looked for once, on a channel of its own."""
        gone = set()
        for exchange in exchanges:
            if exchange in self._known:
                continue
            channel = self._connection.channel()
            await channel.initialize()
            try:
                await channel.get_exchange(exchange)
                self._known.add(exchange)
                await channel.close()
            except self._rmq.exceptions.ChannelNotFoundEntity:
                gone.add(exchange)
        return gone

    async def _publish(
        self, channel: Any, ready: dict[int, tuple[str, str, bytes, Any]]
    ) -> dict[int, BaseException]:
        """Return the errors of those that were not confirmed."""
        tasks = {
            place: asyncio.ensure_future(
                channel.basic_publish(
                    body,
                    exchange=exchange,
                    routing_key=key,
                    properties=properties,
                    mandatory=True,
                    wait=False,
                )
            )
            for place, (exchange, key, body, properties) in ready.items()
        }
        if not tasks:
            return {}
        try:
            _, late = await asyncio.wait(tasks.values(), timeout=self._timeout)
        except BaseException:
            # What was written may still arrive, and what was not must not.
            with anyio.CancelScope(shield=True):
                await _cancel(tasks.values())
                await self._drop()
            raise
        await _cancel(late)
        if late:
            await self._drop()
        late_error = TimeoutError(f"no confirmation within {self._timeout:g} s")
        found: dict[int, BaseException] = {}
        for place, task in tasks.items():
            if task in late:
                found[place] = late_error
            elif task.cancelled():
                found[place] = ConnectionError("the channel was closed")
            elif (error := task.exception()) is not None:
                found[place] = error
        return found

    def _judge(self, message: Message, error: BaseException) -> Answer:
        errors = self._rmq.exceptions
        if isinstance(error, errors.PublishError):
            text = f"no queue takes {message.destination!r}"
            return because(Undeliverable(text, kind="unknown-destination"), error)
        if isinstance(error, errors.DeliveryError):
            return because(RelayError(f"{message.destination!r} did not take it: {error}"), error)
        if isinstance(error, errors.ChannelClosed):
            self._learn(error)
            return self._away(error)
        if isinstance(error, (errors.AMQPError, errors.ChannelInvalidStateError, OSError)):
            return self._away(error)
        if isinstance(error, (TypeError, ValueError)):
            return not_serializable(message, error)
        return error

    def _learn(self, error: BaseException) -> None:
        """The channel was closed for one of the messages; when they are sent again, it is known."""
        self._known = {""}
        found = _LIMIT.search(str(error))
        if found:
            self._most = min(self._most, int(found[1]))

    def _away(self, error: BaseException) -> RelayUnavailable:
        return unavailable(f"RabbitMQ at {self._where}", error)

    async def _drop(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        self._known = {""}
        if connection is not None and not connection.is_closed:
            # Cancelled, too: else its tasks would go on.
            with anyio.CancelScope(shield=True), anyio.move_on_after(1):
                await connection.close()


async def _cancel(tasks: Iterable[asyncio.Future[Any]]) -> None:
    pending = [each for each in tasks if not each.done()]
    for each in pending:
        each.cancel()
    if pending:
        await asyncio.wait(pending)


def _check_headers(headers: dict[str, str]) -> None:
    size = len("".join((*headers, *headers.values())).encode()) + 8 * len(headers)
    if size > LONGEST_HEADERS:
        raise ValueError(f"headers of {size:,} bytes: {LONGEST_HEADERS:,} fit")
    if any(len(name.encode()) > LONGEST_NAME for name in headers):
        raise ValueError(f"the name of a header has over {LONGEST_NAME} bytes")


def _is_name(text: object) -> bool:
    if not isinstance(text, str) or any(ord(each) < 32 for each in text):
        return False
    try:
        return len(text.encode()) <= LONGEST_NAME
    except UnicodeEncodeError:
        return False
