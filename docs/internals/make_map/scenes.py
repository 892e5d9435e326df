"""The five walks: what listens, and what its handler does."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy.ext.asyncio import AsyncSession  # noqa: TC002 - the annotations of handlers are read

from sa_outbox import Event, Outbox, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sa_outbox.relay.message import Answer, Message

EVENT_TYPE = "walk.begun"
QUICKLY = RetryPolicy(attempts=2, base=timedelta(milliseconds=50), jitter=False)


@dataclass(frozen=True)
class Scene:
    name: str
    """Of its page, too: ``walk-NAME.md``."""
    title: str
    story: str
    listen: Callable[[Outbox], None]


class FailsOnce:
    """A handler to which each event fails at the first attempt."""

    def __init__(self) -> None:
        self._seen = set[Any]()

    async def __call__(self, event: Event[Any]) -> None:
        if event.event_id not in self._seen:
            self._seen.add(event.event_id)
            raise ConnectionError("nobody answers")


class Memory:
    """A relay whose other side is a list."""

    keeps_order = True
    takes_batches = True
    attribute_prefix = "ce-"

    def __init__(self) -> None:
        self.taken: list[Message] = []

    def check_destination(self, destination: str) -> None:
        """Every name will do."""

    async def send(self, messages: Sequence[Message]) -> Sequence[Answer]:
        self.taken += messages
        return [None] * len(messages)

    async def close(self) -> None:
        """Nothing is open."""


def _with_session(outbox: Outbox) -> None:
    @outbox.listener("walker", on=EVENT_TYPE)
    async def handle(event: Event[Any], session: AsyncSession) -> None: ...


def _without_session(outbox: Outbox) -> None:
    @outbox.listener("walker", on=EVENT_TYPE)
    async def handle(event: Event[Any]) -> None: ...


def _queue(outbox: Outbox) -> None:
    outbox.listener("walker", on=EVENT_TYPE, order="none", retry=QUICKLY)(FailsOnce())


def _keyed(outbox: Outbox) -> None:
    outbox.listener("walker", on=EVENT_TYPE, order="key", retry=QUICKLY)(FailsOnce())


def _relay(outbox: Outbox) -> None:
    outbox.relay("walker", Memory(), on=EVENT_TYPE, to="walks")


SCENES = {
    scene.name: scene
    for scene in (
        Scene(
            "session",
            "A listener with a session",
            "The handler takes `(event, session)`: what it does is committed with the cursor.",
            _with_session,
        ),
        Scene(
            "no-session",
            "A listener without a session",
            "The handler takes `(event)`: the cursor moves after it has returned.",
            _without_session,
        ),
        Scene(
            "queue",
            "A queue whose handler fails once",
            'A listener with `order="none"`. The first attempt raises, the event waits in a row of'
            " its own, the second attempt succeeds.",
            _queue,
        ),
        Scene(
            "key",
            "A listener in the order of keys, whose handler fails once",
            'A listener with `order="key"`. The first attempt raises, the event is parked and holds'
            " back its key, the second attempt succeeds.",
            _keyed,
        ),
        Scene(
            "relay",
            "A relay",
            "The other side is a list in memory: what a broker's client does is not among the"
            " steps.",
            _relay,
        ),
    )
}
