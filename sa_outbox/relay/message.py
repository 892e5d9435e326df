"""What a relay sends, and what it is: the contract of every relay, ours or your own.

A relay is a listener that forwards. It gets messages, and answers for each of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sa_outbox.event import Event

JSON: str = "application/json"


@dataclass(frozen=True, slots=True)
class Message:
    """An event as it is sent."""

    event: Event[Any]
    """What it was made from. Its ``event_id`` travels with it: receivers know duplicates by it."""
    destination: str
    """A topic, subject, stream, routing key or address: what the broker calls it."""
    body: bytes
    key: str | None = None
    """Messages of one key stay in their order."""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = JSON


Answer: TypeAlias = BaseException | None
"""What became of a message. None: the other side has it and said so.
:class:`~sa_outbox.Undeliverable`: never, so it becomes a dead letter.
:class:`~sa_outbox.RelayUnavailable`: the other side can't be reached; nothing is counted, and the
relay waits. :class:`~sa_outbox.RetryLater` and every other error: this message failed, and is sent
again by the retry policy."""


class Relay(Protocol):
    """Forwards messages to one other system.

    Made without connecting to anything; connects when it has something to send, and again when the
    connection was lost. One relay is used by one event loop, and ``send`` by one task at a time for
    each of the listener's ``concurrency``.

    It may have more attributes: ``retry``, a policy for listeners that are given none; ``quote``,
    a function for fields of the event that are put into ``to=``; ``deadline``, how long it waits
    for an answer by itself, which has to be less than the listener's ``timeout``.
    """

    keeps_order: bool
    """``send`` lets nothing arrive that comes after a message that did not. If False, it is given
    one message of each key at a time, and the next when that one has its answer."""
    takes_batches: bool
    """If False, it is given one message at a time."""
    attribute_prefix: str
    """What CloudEvents put before the names of their attributes in this protocol's headers."""

    def check_destination(self, destination: str) -> None:
        """Raise :class:`~sa_outbox.ConfigError` if there can't be a destination of this name."""
        ...

    async def send(self, messages: Sequence[Message]) -> Sequence[Answer]:
        """Send *messages* in their order, wait until the other side has them, and answer for each.

        Raising is answering the same for all of them. Cancelled, it leaves nothing running.
        """
        ...

    async def close(self) -> None:
        """Give connections back. ``send`` may be called again afterwards."""
        ...
