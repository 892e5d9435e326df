"""What a handler gets: an event, or those of a batch, made of what is stored.

One that can't be read fails, as an attempt of its own; it is never attempted with the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from sa_outbox.event import stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from sa_outbox.declare.listener import Listener
    from sa_outbox.event.event import Event
    from sa_outbox.event.wanted import Wanted

    from .delivery import InFlight


class EventLoader:
    """Makes an event of its row, for one handler: decoded as far as that must be known before."""

    def __init__(self, listener: Listener, *, is_traced: bool) -> None:
        call, forwarding = listener.call, listener.forwarding
        # Of a batch, an event that can't be read must fail alone; a span reads the headers.
        load = stored.load_whole if call.batch or is_traced else stored.load_event
        self.read: Callable[[Any, Wanted | None], Event[Any]] = (
            load if forwarding is None else stored.load_to_forward
        )
        self.wanted: Wanted | None = call.payload if forwarding is None else forwarding.payload

    def __call__(self, item: InFlight) -> Event[Any]:
        event = self.read(item.row, self.wanted)
        if item.attempts:
            stored.now_attempt(event, item.attempts + 1)
        return event


class Conclusion(Protocol):
    """What an event that can't be read comes to."""

    def unreadable(self, item: InFlight, error: BaseException, /) -> None: ...


class Lanes(Protocol):
    """Where those behind it wait."""

    def put_back(self, items: list[InFlight], /) -> None: ...


class HandlerArguments:
    """Those of one handler's calls, in one task."""

    def __init__(
        self, load: EventLoader, conclusion: Conclusion, lanes: Lanes, *, batch: bool
    ) -> None:
        self._load = load
        self._conclusion = conclusion
        self._lanes = lanes
        self._batch = batch

    def load(self, items: list[InFlight]) -> tuple[list[InFlight], Any]:
        """Those that can be read, and what the handler gets."""
        try:
            if self._batch:
                return items, [self._load(item) for item in items]
            return items, self._load(items[0])
        except BaseException as error:  # noqa: BLE001 - an upcaster is the user's code
            if len(items) == 1:
                self._conclusion.unreadable(items[0], error)
                return [], None
            return self._load_each(items)

    def _load_each(self, items: list[InFlight]) -> tuple[list[InFlight], list[Event[Any]]]:
        """Of a batch: one that can't be read fails alone, those after it in its lane wait."""
        good: list[InFlight] = []
        events: list[Event[Any]] = []
        behind: dict[object, list[InFlight]] = {}
        failed: list[tuple[InFlight, BaseException]] = []
        for item in items:
            if item.lane in behind:
                behind[item.lane].append(item)
                continue
            try:
                events.append(self._load(item))
                good.append(item)
            except BaseException as unreadable:  # noqa: BLE001 - an upcaster is the user's code
                behind[item.lane] = []
                failed.append((item, unreadable))
        lanes = {item.lane for item in good}
        for item, error in failed:
            if item.lane in lanes:
                # Earlier ones of its lane go first; it is attempted when the lane is free again.
                self._lanes.put_back([item, *behind[item.lane]])
            else:
                self._lanes.put_back(behind[item.lane])
                self._conclusion.unreadable(item, error)
        return good, events
