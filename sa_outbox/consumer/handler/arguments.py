"""What a handler gets: an event, or those of a batch, made of what is stored.

One that can't be read fails, as an attempt of its own; it is never attempted with the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from sa_outbox.event.event import Event

    from .call import HandlerCall
    from .delivery import InFlight


class Conclusion(Protocol):
    """What an event that can't be read comes to."""

    def unreadable(self, item: InFlight, error: BaseException, /) -> None: ...


class Lanes(Protocol):
    """Where those behind it wait."""

    def put_back(self, items: list[InFlight], /) -> None: ...


class HandlerArguments:
    """Those of one handler's calls, in one task."""

    def __init__(
        self, call: HandlerCall, conclusion: Conclusion, lanes: Lanes, *, batch: bool
    ) -> None:
        self._call = call
        self._conclusion = conclusion
        self._lanes = lanes
        self._batch = batch

    def load(self, items: list[InFlight]) -> tuple[list[InFlight], Any]:
        """Those that can be read, and what the handler gets."""
        try:
            if self._batch:
                return items, self._call.load_all(items)
            return items, self._call.load(items[0])
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
                events.append(self._call.load(item))
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
