"""What is going on, counted from the shop and from the consumer's observations."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from ..observe import (
    AttemptFailed,
    CaughtUp,
    DeliverySettled,
    LeaseClaimed,
    Observation,
    RangeTaken,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..declare.listener import Listener
    from .shop import Shop

WINDOW_SECONDS = 2.0
"""Seconds over which events per second are measured."""
TITLES = "seconds   orders  rolled back   events    handled  retries  dead letters"
"""Headers of ``Snapshot.line``."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One listener at one moment."""

    listener: str
    position: int
    lag: int
    """Committed events that it has not handled yet."""
    handled: int
    retries: int
    dead_letters: int
    state: str
    failure: str = ""
    """Its last failure, and the consequence."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Everything at one moment."""

    seconds: float
    orders: int
    refused: int
    written: int
    written_per_second: float
    handled_per_second: float
    closing: bool
    rows: tuple[Row, ...]

    @property
    def line(self) -> str:
        """All of it, under ``TITLES``."""
        handled, retries, dead = (
            sum(getattr(row, each) for row in self.rows)
            for each in ("handled", "retries", "dead_letters")
        )
        return (
            f"{self.seconds:7.0f}  {self.orders:7,}  {self.refused:11,}  {self.written:7,}  "
            f"{handled:9,}  {retries:7,}  {dead:12,}"
        )


@dataclass
class _Listener:
    declared: Listener
    position: int = 0
    handled: int = 0
    retries: int = 0
    dead_letters: int = 0
    claimed: bool = False
    failure: str = ""
    waiting: set[int] = field(default_factory=set)
    """Positions of deliveries that wait for their next attempt."""

    def settled(self, what: DeliverySettled) -> None:
        self.position = max(self.position, what.position)
        self.waiting.discard(what.position)
        match what.outcome:
            case "done":
                self.handled += 1
            case "dead":
                self.dead_letters += 1
            case "retry":
                self.retries += 1
                self.waiting.add(what.position)

    def failed(self, what: AttemptFailed) -> None:
        most = self.declared.retry_of(what.event_type).attempts
        then = "dead letter" if what.retry_in is None else f"again in {what.retry_in:.2f} s"
        self.failure = f"attempt {what.attempt} of {most}, {then}: {what.failure.message}"

    def state(self, lag: int) -> str:
        if not self.claimed:
            return "starting"
        if self.waiting:
            return f"{len(self.waiting)} to retry"
        return "at work" if lag else "caught up"


class Counts:
    """An observer of the consumer that knows the shop too."""

    def __init__(self, shop: Shop, listeners: Iterable[Listener]) -> None:
        self._shop = shop
        self._listeners = {each.name: _Listener(each) for each in listeners}
        self._began = monotonic()
        self._samples: deque[tuple[float, int, int]] = deque([(self._began, 0, 0)])

    def observe(self, observation: Observation) -> None:
        match observation:
            case DeliverySettled():
                self._listeners[observation.listener].settled(observation)
            case AttemptFailed():
                self._listeners[observation.listener].failed(observation)
            case LeaseClaimed() | RangeTaken():
                self._listeners[observation.listener].claimed = True
            case CaughtUp():
                # Past events of types that it does not listen to.
                listener = self._listeners[observation.listener]
                listener.position = max(listener.position, observation.position)
            case _:
                pass

    def snapshot(self) -> Snapshot:
        now = monotonic()
        written = self._shop.written.total()
        handled = sum(each.handled for each in self._listeners.values())
        while len(self._samples) > 1 and self._samples[0][0] < now - WINDOW_SECONDS:
            self._samples.popleft()
        then, written_then, handled_then = self._samples[0]
        self._samples.append((now, written, handled))
        passed = max(now - then, 0.001)
        return Snapshot(
            seconds=now - self._began,
            orders=self._shop.orders,
            refused=self._shop.refused,
            written=written,
            written_per_second=(written - written_then) / passed,
            handled_per_second=(handled - handled_then) / passed,
            closing=self._shop.is_closing,
            rows=tuple(self._row(each) for each in self._listeners.values()),
        )

    def _row(self, listener: _Listener) -> Row:
        written = sum(self._shop.written[each] for each in listener.declared.on)
        # A listener may learn of a commit before whoever committed.
        lag = max(0, written - listener.handled - listener.dead_letters)
        return Row(
            listener=listener.declared.name,
            position=listener.position,
            lag=lag,
            handled=listener.handled,
            retries=listener.retries,
            dead_letters=listener.dead_letters,
            state=listener.state(lag),
            failure=listener.failure,
        )
