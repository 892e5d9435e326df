"""To RabbitMQ: each message is confirmed by the broker and routed to a queue, or it is an error.

A broker confirms messages that it can't route, and drops them: so every message is mandatory. It
closes a channel because of one wrong message, and does not say which: so exchanges are checked
first.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio

from sa_outbox.errors import ConfigError, RelayError, RelayUnavailable, Undeliverable
from sa_outbox.policy.checks import check_span

from .errors import missing, not_serializable, too_large, unavailable, with_cause
from .rabbitmq_link import Link
from .words import RABBITMQ

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .message import Answer, Message
    from .rabbitmq_link import Ready

LONGEST_NAME = 255
"""Bytes of a routing key, and of an exchange: the protocol has one byte for the length."""
LONGEST_HEADERS = 100_000
"""Bytes: they have to fit into one frame, and a broker ends the connection of a client that sends
more."""
_LIMIT = re.compile(r"larger than (?:configured )?max size (\d+)")


class RabbitMQ:
    """Sends to a RabbitMQ exchange. ``to=`` is the routing key.

    With *exchange* ``""``, RabbitMQ's default, the routing key is the name of a queue. With None,
    ``to=`` names both: ``"exchange/routing.key"``. *timeout* limits connecting, and each wave.
    """

    keeps_order = False
    takes_batches = True
    attribute_prefix = "cloudEvents_"
    protocol = "amqp"

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
            import aiormq  # noqa: PLC0415 - of an extra
        except ImportError as error:
            raise missing("RabbitMQ", "rabbitmq") from error
        try:
            parts = urlsplit(url)
            good = parts.scheme in ("amqp", "amqps") and parts.hostname
            self._where = f"{parts.hostname}:{parts.port or 5672}{parts.path}"
        except (AttributeError, TypeError, ValueError):
            good = False
        if not good:
            # Without the URL: it may contain a password.
            raise ConfigError(
                "the URL of RabbitMQ must be like amqp://host:5672/vhost, or amqps://"
            )
        if exchange is not None and not _is_name(exchange):
            raise ConfigError(f"exchange of RabbitMQ has at most 255 bytes: {exchange!r}")
        check_span("timeout of RabbitMQ", timeout)
        self._rmq: Any = aiormq
        self.exchange: str | None = exchange
        self._most = max_message_bytes
        self._timeout = timeout.total_seconds()
        self._link = Link(aio_pika, aiormq, url, self._timeout)

    def __repr__(self) -> str:
        return f"RabbitMQ({self._where!r})"

    def quote(self, field: str) -> str:
        """Quote a key or tenant in ``to=``: one word of the routing key. On the default exchange it
        is the name of a queue, which has no words."""
        return field if self.exchange == "" else RABBITMQ.one(field)

    def quote_type(self, event_type: str) -> str:
        """Quote an event type in ``to=``."""
        return event_type if self.exchange == "" else RABBITMQ.some(event_type)

    def check_destination(self, destination: str) -> None:
        """Refuse anything that is not a routing key, or an exchange with one."""
        if not isinstance(destination, str):
            raise ConfigError(f"a routing key is text: {destination!r}")
        if self.exchange is None and "/" not in destination:
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
        ready: dict[int, Ready] = {}
        for place, message in enumerate(messages):
            made = self._make(message)
            if isinstance(made, Undeliverable):
                answers[place] = made
            else:
                ready[place] = made
        try:
            with anyio.fail_after(self._timeout):
                await self._link.open()
                gone = await self._link.missing({each[0] for each in ready.values()})
        except Exception as error:  # noqa: BLE001 - nothing was sent yet, so no message is to blame
            await self._link.drop()
            failed = self._away(error)
            return [failed if place in ready else answers[place] for place in range(len(messages))]
        for place in [place for place, each in ready.items() if each[0] in gone]:
            text = f"there is no exchange {ready.pop(place)[0]!r}"
            answers[place] = Undeliverable(text, kind="unknown-destination")
        for place, refused in (await self._link.publish(ready)).items():
            answers[place] = self._judge(messages[place], refused)
        return answers

    async def close(self) -> None:
        """Close the connection."""
        await self._link.drop()

    def _split(self, destination: str) -> tuple[str, str]:
        if self.exchange is not None:
            return self.exchange, destination
        exchange, _, key = destination.partition("/")
        return exchange, key

    def _make(self, message: Message) -> Ready | Undeliverable:
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

    def _judge(self, message: Message, error: BaseException) -> Answer:
        errors = self._rmq.exceptions
        if isinstance(error, errors.PublishError):
            text = f"no queue takes {message.destination!r}"
            return with_cause(Undeliverable(text, kind="unknown-destination"), error)
        if isinstance(error, errors.DeliveryError):
            return with_cause(
                RelayError(f"{message.destination!r} did not take it: {error}"), error
            )
        if isinstance(error, errors.ChannelClosed):
            self._learn(error)
            return self._away(error)
        if isinstance(error, (errors.AMQPError, errors.ChannelInvalidStateError, OSError)):
            return self._away(error)
        if isinstance(error, (TypeError, ValueError)):
            return not_serializable(message, error)
        if type(error) is Exception:  # aiormq's, for what waits when the connection is closed here
            return self._away(ConnectionError("the connection was closed"))
        return error

    def _learn(self, error: BaseException) -> None:
        """The channel was closed because of one of the messages; remember it for when they are sent
        again."""
        self._link.forget_exchanges()
        found = _LIMIT.search(str(error))
        if found:
            self._most = min(self._most, int(found[1]))

    def _away(self, error: BaseException) -> RelayUnavailable:
        return unavailable(f"RabbitMQ at {self._where}", error)


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
