"""What an error of aiokafka means for the messages of a record batch.

Most that a broker answers never comes here: aiokafka repeats what can be repeated (not the leader,
too few replicas, timed out) by itself, with the same sequence numbers, until the relay's timeout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka import errors

from sa_outbox.errors import Undeliverable
from sa_outbox.relay import answering
from sa_outbox.relay.answering import because

if TYPE_CHECKING:
    from sa_outbox.errors import RelayUnavailable

AWAY = (
    OSError,
    TimeoutError,
    errors.KafkaConnectionError,
    errors.KafkaTimeoutError,
    errors.KafkaUnavailableError,
    errors.BrokerNotAvailableError,
    errors.ReplicaNotAvailableError,
    errors.ClusterAuthorizationFailedError,
    errors.AuthenticationFailedError,
    errors.SaslAuthenticationFailed,
    # This producer is over, the next one has an id of its own.
    errors.ProducerClosed,
    errors.ProducerFenced,
    errors.OutOfOrderSequenceNumber,
    errors.InvalidProducerEpoch,
    errors.InvalidProducerIdMapping,
    errors.UnknownProducerId,
)
"""Nothing is wrong with the messages. Rights of the whole relay are among them: were they taken for
refusals, a password that has expired would turn the log into dead letters."""
DESTINATION = {
    errors.UnknownTopicOrPartitionError: "unknown-destination",
    errors.InvalidTopicError: "refused",
    errors.TopicAuthorizationFailedError: "refused",
}
CONTENT = {
    errors.MessageSizeTooLargeError: "refused",
    errors.RecordListTooLargeError: "refused",
    errors.RecordTooLargeError: "refused",
    errors.InvalidTimestampError: "serialization",
    errors.UnsupportedForMessageFormatError: "serialization",
    errors.PolicyViolationError: "refused",
}


def is_away(error: Exception) -> bool:
    """The other side can't be reached, or is not ready: send all of it again."""
    return isinstance(error, AWAY) or bool(
        getattr(error, "retriable", False) and type(error) not in DESTINATION
    )


def of_destination(error: Exception, destination: str) -> Undeliverable | None:
    """The same for every message to this destination."""
    kind = DESTINATION.get(type(error))
    if kind is None:
        return None
    return because(Undeliverable(f"{destination}: {_text(error)}", kind=kind), error)


def of_one(error: Exception) -> Exception:
    """For the only message of a record batch: never, or again by the retry policy."""
    kind = CONTENT.get(type(error))
    return error if kind is None else because(Undeliverable(_text(error), kind=kind), error)


def unavailable(error: BaseException) -> RelayUnavailable:
    return answering.unavailable("Kafka", error)


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
