"""What differs between FastStream's brokers: names, keyword arguments, confirmations and errors."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from sa_outbox.errors import ConfigError, RelayUnavailable, Undeliverable

from .errors import unavailable, with_cause
from .words import NATS, RABBITMQ

if TYPE_CHECKING:
    from .message import Answer, Message
    from .words import Words

Kind: TypeAlias = Literal["kafka", "rabbit", "nats", "redis"]
Publish: TypeAlias = Callable[[bytes, "Message", dict[str, str]], Awaitable[Any]]

PREFIXES: dict[Kind, str] = {
    "kafka": "ce_",
    "rabbit": "cloudEvents_",
    "nats": "ce-",
    "redis": "ce_",
}
LONGEST: dict[Kind, int] = {"kafka": 249, "rabbit": 255, "nats": 1000, "redis": 512}
"""Maximum bytes of a destination."""
_NAMES: dict[Kind, tuple[re.Pattern[str], str]] = {
    "kafka": (
        re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}"),
        "a topic is letters, digits, '.', '_' and '-'",
    ),
    "rabbit": (re.compile(r"[^\x00-\x1f\x7f]{1,255}"), "a routing key is text of up to 255 bytes"),
    "nats": (
        re.compile(r"(?!\$|_INBOX\.)[^\s.*>\x00-\x1f\x7f]+(\.[^\s.*>\x00-\x1f\x7f]+)*"),
        "a subject is words with dots between, no spaces or wildcards",
    ),
    "redis": (re.compile(r"[^\s\x00-\x1f\x7f]{1,512}"), "a stream's or list's name has no spaces"),
}
_AWAY = frozenset(
    {
        # FastStream: not connected
        *("IncorrectState",),
        # aiokafka
        *("KafkaConnectionError", "KafkaTimeoutError", "NodeNotReadyError", "ProducerClosed"),
        *("RequestTimedOutError", "NotLeaderForPartitionError", "LeaderNotAvailableError"),
        *("NotEnoughReplicasError", "NotEnoughReplicasAfterAppendError", "ProducerFenced"),
        *("OutOfOrderSequenceNumber", "UnknownProducerId", "ClusterAuthorizationFailedError"),
        # aio-pika
        *("AMQPConnectionError", "ChannelInvalidStateError", "ConnectionClosed"),
        # nats-py
        *("ConnectionClosedError", "ConnectionReconnectingError", "ConnectionDrainingError"),
        *(
            "NoServersError",
            "StaleConnectionError",
            "OutboundBufferLimitError",
            "AuthorizationError",
        ),
        *("ServiceUnavailableError",),
        # redis-py, whose TimeoutError is not Python's
        *("ConnectionError", "TimeoutError", "BusyLoadingError", "ReadOnlyError"),
        *("OutOfMemoryError", "AuthenticationError", "NoPermissionError"),
        *("ClusterDownError", "MasterDownError"),
    }
)
"""Names of errors, or of their base classes: the clients are not imported here."""
_NEVER = {
    "MessageSizeTooLargeError": "refused",
    "InvalidTopicError": "refused",
    "TopicAuthorizationFailedError": "refused",
    "UnknownTopicOrPartitionError": "unknown-destination",
    "MaxPayloadError": "serialization",
    "ChannelNotFoundEntity": "unknown-destination",
    "ChannelAccessRefused": "refused",
    "PublishError": "unknown-destination",
}


def check_name(kind: Kind, destination: str) -> None:
    pattern, says = _NAMES[kind]
    if not pattern.fullmatch(destination) or len(destination.encode()) > LONGEST[kind]:
        raise ConfigError(f"{says}: {destination!r:.300}")


def words_of(kind: Kind, exchange: object) -> Words | None:
    """How fields in ``to=`` are quoted; None where a destination has no words."""
    if kind == "rabbit":
        return None if exchange is None else RABBITMQ
    return NATS if kind == "nats" else None


def describe(kind: Kind) -> str:
    return f"the {kind} broker of FastStream"


def judge(kind: Kind, error: Exception) -> Answer:
    """What an error of the broker's client means for the published message."""
    names = [each.__name__ for each in type(error).__mro__]
    for name in names:
        if name in _NEVER:
            return with_cause(Undeliverable(str(error) or name, kind=_NEVER[name]), error)
    if "ResponseError" in names and str(error).startswith("WRONGTYPE"):
        return with_cause(Undeliverable(str(error), kind="unknown-destination"), error)
    if isinstance(error, OSError) or not _AWAY.isdisjoint(names):
        return unavailable(describe(kind), error)
    return error


def kind_of(broker: object) -> Kind:
    for each in type(broker).__mro__:
        for kind in PREFIXES:
            if each.__module__.startswith(f"faststream.{kind}."):
                return kind
    raise ConfigError(
        "FastStream takes a KafkaBroker, RabbitBroker, NatsBroker or RedisBroker of faststream "
        f'(pip install "sa_outbox[faststream]"), not {type(broker).__name__}'
    )


def check_confirms(kind: Kind, broker: Any, stream: str | None, redis: str) -> None:
    if kind == "nats" and not stream:
        raise ConfigError(
            "NATS confirms nothing without JetStream: give stream=, the one that takes the subjects"
        )
    if redis not in ("stream", "list"):
        raise ConfigError(
            f'redis= must be "stream" or "list", not {redis!r}: what is sent to a channel is gone '
            "if nobody listens, and nobody says so"
        )
    options = getattr(broker, "_connection_kwargs", {})
    if kind == "kafka" and not options.get("enable_idempotence"):
        acks = options.get("acks")
        if acks not in ("all", -1):
            raise ConfigError(
                'make the KafkaBroker with acks="all" (or enable_idempotence=True): otherwise a '
                "message is lost with the broker that has confirmed it"
            )


def publishing(
    kind: Kind, broker: Any, exchange: Any, stream: str | None, redis: str, timeout: float
) -> Publish:
    """How to pass destination, key and headers to a broker of this kind."""

    def publish(body: bytes, message: Message, headers: dict[str, str]) -> Awaitable[Any]:
        event_id, destination = str(message.event.event_id), message.destination
        send = partial(
            broker.publish,
            body,
            headers=headers,
            correlation_id=headers.get("correlation_id", event_id),
        )
        sent: Awaitable[Any]
        if kind == "kafka":
            key = None if message.key is None else message.key.encode()
            sent = send(topic=destination, key=key)
        elif kind == "rabbit":
            sent = send(
                exchange=exchange,
                routing_key=destination,
                mandatory=True,
                persist=True,
                message_id=event_id,
                content_type=message.content_type,
                timeout=timeout,
            )
        elif kind == "nats":
            headers["Nats-Msg-Id"] = event_id
            sent = send(subject=destination, stream=stream, timeout=timeout)
        else:
            # FastStream's format for Redis counts characters but writes bytes.
            wide = {name: value.encode() for name, value in headers.items() if not value.isascii()}
            sent = send(**{redis: destination}, headers={**headers, **wide})
        return sent

    return publish


def judge_confirmation(said: object) -> Answer:
    """For RabbitMQ. A message that no queue takes comes back, and then it is confirmed."""
    name = type(said).__name__
    if name == "Ack":
        return None
    if name == "DeliveredMessage":
        return Undeliverable("no queue takes this routing key", kind="unknown-destination")
    if said is None:
        return RelayUnavailable("the channel of the broker has publisher_confirms=False")
    return RelayUnavailable(f"RabbitMQ did not take the message: {name}")
