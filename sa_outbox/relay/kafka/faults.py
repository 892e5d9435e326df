"""What an aiokafka error means for the messages of a record batch.

Most broker errors never get here: aiokafka retries what can be retried (not the leader, too few
replicas, timed out) by itself, with the same sequence numbers, until the relay's timeout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka import errors

from sa_outbox.errors import Undeliverable
from sa_outbox.relay import errors as answering
from sa_outbox.relay.errors import with_cause

if TYPE_CHECKING:
    from sa_outbox.errors import RelayUnavailable

AWAY: tuple[type[Exception], ...] = (
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
    # This producer is finished; the next one has a new id.
    errors.ProducerClosed,
    errors.ProducerFenced,
    errors.OutOfOrderSequenceNumber,
    errors.InvalidProducerEpoch,
    errors.InvalidProducerIdMapping,
    errors.UnknownProducerId,
)
"""Nothing is wrong with the messages. Includes missing rights of the whole relay: if those counted
as refusals, an expired password would turn the log into dead letters."""
DESTINATION: dict[type[Exception], str] = {
    errors.UnknownTopicOrPartitionError: "unknown-destination",
    errors.InvalidTopicError: "refused",
    errors.TopicAuthorizationFailedError: "refused",
}
CONTENT: dict[type[Exception], str] = {
    errors.MessageSizeTooLargeError: "refused",
    errors.RecordListTooLargeError: "refused",
    errors.RecordTooLargeError: "refused",
    errors.InvalidTimestampError: "serialization",
    errors.UnsupportedForMessageFormatError: "serialization",
    errors.PolicyViolationError: "refused",
}


def is_unreachable(error: Exception) -> bool:
    """The broker can't be reached, or is not ready: send everything again."""
    return isinstance(error, AWAY) or bool(
        getattr(error, "retriable", False) and type(error) not in DESTINATION
    )


def of_destination(error: Exception, destination: str) -> Undeliverable | None:
    """The error for every message to this destination, if the destination itself is refused."""
    kind = DESTINATION.get(type(error))
    if kind is None:
        return None
    return with_cause(Undeliverable(f"{destination}: {_text(error)}", kind=kind), error)


def of_one(error: Exception) -> Exception:
    """For the only message of a record batch: give it up, or retry according to the policy."""
    kind = CONTENT.get(type(error))
    return error if kind is None else with_cause(Undeliverable(_text(error), kind=kind), error)


def unavailable(error: BaseException) -> RelayUnavailable:
    return answering.unavailable("Kafka", error)


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
