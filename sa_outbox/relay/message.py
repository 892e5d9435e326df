"""The contract of every relay, ours or your own: what it sends, and how it answers.

A relay is a listener that forwards. It gets messages, and answers for each of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sa_outbox.event.event import Event

JSON: str = "application/json"


@dataclass(frozen=True, slots=True)
class Message:
    """An event as it is sent."""

    event: Event[Any]
    """The event it was made from. Its ``event_id`` travels with it: receivers recognise duplicates
    by it."""
    destination: str
    """A topic, subject, stream, routing key or address: what the broker calls it."""
    body: bytes
    key: str | None = None
    """Messages of one key stay in order."""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = JSON


Answer: TypeAlias = BaseException | None
"""The result for a message. None: the receiver confirmed it. :class:`~sa_outbox.Undeliverable`: it
can never be delivered, so it becomes a dead letter. :class:`~sa_outbox.RelayUnavailable`: the
receiver can't be reached; nothing is counted, and the relay waits. :class:`~sa_outbox.RetryLater`
and every other error: this message failed, and is retried according to the policy."""


class Relay(Protocol):
    """Forwards messages to one other system.

    Created without connecting; it connects when it has something to send, and again when the
    connection was lost. One relay is used by one event loop, and ``send`` by one task at a time for
    each of the listener's ``concurrency``.

    It may have more attributes: ``protocol``, AsyncAPI's name of what it speaks, for the catalogue;
    ``retry``, a policy for listeners without one; ``quote``, a
    function for event fields that are put into ``to=``, and ``quote_type``, one for the event type,
    if that differs; ``deadline``, how long it waits for an answer by itself, which must be less
    than the listener's ``timeout``.
    """

    keeps_order: bool
    """If a message does not arrive, ``send`` lets nothing that follows it arrive. If False, it is
    given one message of each key at a time, and the next when that one has its answer."""
    takes_batches: bool
    """If False, it is given one message at a time."""
    attribute_prefix: str
    """The prefix of CloudEvents attributes in this protocol's headers."""

    def check_destination(self, destination: str) -> None:
        """Raise :class:`~sa_outbox.ConfigError` if this can't be a destination."""
        ...

    async def send(self, messages: Sequence[Message]) -> Sequence[Answer]:
        """Send *messages* in order, wait until the receiver has them, and answer for each.

        Raising means that answer for all of them. If cancelled, it leaves nothing running.
        """
        ...

    async def close(self) -> None:
        """Close connections. ``send`` may be called again afterwards."""
        ...
