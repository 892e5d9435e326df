"""``Kafka``: messages to records, and the broker's results to answers."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import anyio

from sa_outbox.errors import ConfigError, RelayUnavailable
from sa_outbox.policy.checks import check_span
from sa_outbox.relay.errors import missing

from .packs import next_packs
from .quiet import Seldom

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from sa_outbox.relay.message import Answer, Message

    from .link import Link

PACK = 512 * 1024
"""Bytes of a record batch; half of what brokers accept by default."""
LARGEST = 1_000_000
REQUEST_SECONDS = 10.0
DELIVERY_SECONDS = 20.0
UNKNOWN_AFTER_SECONDS = 10.0
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_OURS = frozenset(
    {
        *("loop", "api_version", "acks", "enable_idempotence", "transactional_id", "linger_ms"),
        *("transaction_timeout_ms", "key_serializer", "value_serializer", "partitioner"),
        *("max_batch_size", "max_request_size", "request_timeout_ms"),
    }
)
"""Producer options that the relay's guarantees depend on."""


_OPEN = RelayUnavailable("not sent")
"""No answer yet."""


class Kafka:
    """Forwards to topics of a Kafka cluster::

        outbox.relay("orders-to-kafka", Kafka("127.0.0.1:9092"), on="order.*", to="orders")

    *options* are aiokafka's own, of security above all: ``security_protocol``, ``ssl_context``,
    ``sasl_mechanism``, ``sasl_plain_username`` and so on, and ``compression_type``.
    """

    keeps_order = True
    takes_batches = True
    attribute_prefix = "ce_"
    protocol = "kafka"

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str = "sa_outbox",
        max_batch_bytes: int = PACK,
        max_message_bytes: int = LARGEST,
        request_timeout: timedelta | None = None,
        delivery_timeout: timedelta | None = None,
        unknown_after: timedelta | None = None,
        quiet: bool = True,
        **options: Any,
    ) -> None:
        """*max_batch_bytes*: size of a record batch. *max_message_bytes*: anything larger becomes a
        dead letter without being sent. *request_timeout*: how long a broker may take for a request,
        10 s; after that it reconnects. *delivery_timeout*: how long sending is retried until the
        relay reports that the cluster is unreachable, 20 s. *unknown_after*: how long to wait for a
        destination that no broker knows, 10 s; then its messages become dead letters. *quiet*: log
        each kind of aiokafka's lines once a minute instead of ten times a second."""
        self._client = _client()
        _check_options(options)
        if not bootstrap_servers or not all(bootstrap_servers):
            raise ConfigError("Kafka needs the address of one or more brokers: host:port")
        for name, size in (
            ("max_batch_bytes", max_batch_bytes),
            ("max_message_bytes", max_message_bytes),
        ):
            if not isinstance(size, int) or not 1024 <= size < 2**30:
                raise ConfigError(f"{name} must be a number from 1024 to 2**30: {size!r}")
        self._max_pack, self._max_message = max_batch_bytes, max_message_bytes
        self._unknown_after = _seconds("unknown_after", unknown_after, UNKNOWN_AFTER_SECONDS)
        self._within = _seconds("delivery_timeout", delivery_timeout, DELIVERY_SECONDS)
        request = _seconds("request_timeout", request_timeout, REQUEST_SECONDS)
        servers = bootstrap_servers if isinstance(bootstrap_servers, str) else [*bootstrap_servers]
        self._options = {
            **options,
            "bootstrap_servers": servers,
            "client_id": client_id,
            "request_timeout_ms": int(request * 1000),
        }
        self._link: Link | None = None
        self._connecting = anyio.Lock()
        self._quiet = Seldom() if quiet else None

    def check_destination(self, destination: str) -> None:
        if not _NAME.fullmatch(destination) or destination in (".", ".."):
            raise ConfigError(
                f"invalid Kafka topic {destination!r:.300}: letters, digits, '.', '_' "
                "and '-', at most 249 of them"
            )

    async def send(self, messages: Sequence[Message]) -> Sequence[Answer]:
        answers: list[Answer] = [_OPEN] * len(messages)
        away: RelayUnavailable | None = None
        try:
            away = await self._send(messages, answers)
        except RelayUnavailable as error:
            away = error
        if away is None:
            return answers
        return [away if each is _OPEN else each for each in answers]

    async def close(self) -> None:
        async with self._connecting:
            link, self._link = self._link, None
            if link is not None:
                await link.give_up()
            if self._quiet is not None:
                self._quiet.end()

    async def _send(
        self, messages: Sequence[Message], answers: list[Answer]
    ) -> RelayUnavailable | None:
        """Fill *answers*; what is still open was not sent, for the returned reason."""
        link = await self._linked()
        waiting = await self._client.to_records(
            link,
            messages,
            answers,
            largest=self._max_message,
            unknown_after=self._unknown_after,
        )
        while waiting:
            link = await self._linked()
            packs, waiting = next_packs(waiting, limit=self._max_pack)
            await link.deliver(packs, within=self._within)
            away: RelayUnavailable | None
            again, away = self._client.settle(packs, answers)
            if away is not None:
                return away
            waiting = sorted([*again, *waiting], key=lambda each: each.index)
        return None

    async def _linked(self) -> Link:
        async with self._connecting:
            link = self._link
            if link is None or link.over:
                if self._quiet is not None:
                    self._quiet.begin()
                try:
                    link = self._link = self._client.Link(self._options)
                except (ValueError, RuntimeError, TypeError) as error:
                    # Nothing is known about any message: none may become a dead letter because of
                    # it.
                    raise RelayUnavailable(f"aiokafka refuses its options: {error}") from error
                await link.start(within=self._within)
            return link


def _seconds(name: str, given: timedelta | None, default: float) -> float:
    if given is None:
        return default
    check_span(name, given)
    return max(given.total_seconds(), 0.001)  # aiokafka counts milliseconds


def _client() -> Any:
    """The module that needs aiokafka, an extra."""
    try:
        from . import records  # noqa: PLC0415 - needs aiokafka, an extra
    except ImportError as error:
        raise missing("Kafka", "kafka") from error
    return records


def _check_options(options: dict[str, Any]) -> None:
    from aiokafka import AIOKafkaProducer  # noqa: PLC0415 - needs aiokafka, an extra

    known = inspect.signature(AIOKafkaProducer.__init__).parameters
    for name in options:
        if name in _OURS:
            raise ConfigError(f"{name} is set by the relay: its guarantees depend on it")
        if name not in known:
            raise ConfigError(f"neither the Kafka relay nor aiokafka has an option {name!r}")
