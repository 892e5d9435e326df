"""Counts what a consumer reports.

Plain numbers in dicts, changed in the event loop without a lock and copied on request: an event
costs two additions, whatever library reads them. Copying a dict or a list is one atomic step for
the reading thread; a number added meanwhile appears in the next answer.
"""

from __future__ import annotations

from bisect import bisect_left
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

from sa_outbox import observe
from sa_outbox.event.types import event_types

from . import families
from .families import BUCKETS, FAMILIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sa_outbox.observe import Observation
    from sa_outbox.outbox import Outbox

    from .families import Family

Labels: TypeAlias = tuple[str, ...]
OTHER = "other"


class Durations:
    """A histogram of seconds: how many fell below each bound, and their sum."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds


class Metrics:
    """An observer that keeps the numbers of ``families``.

    ::

        metrics = Metrics(outbox)
        consumer = Consumer(outbox, engine, observers=[metrics])

    ``prometheus.register(metrics)`` adds them to a registry; ``Monitor`` serves them.
    """

    wants_measures = True

    def __init__(self, outbox: Outbox) -> None:
        self._listened = {each for listener in outbox.listeners for each in listener.on}
        self._numbers: dict[str, dict[Labels, float]] = {
            each.name: {} for each in FAMILIES if each.kind != "histogram"
        }
        self._durations: dict[str, dict[Labels, Durations]] = {
            each.name: {} for each in FAMILIES if each.kind == "histogram"
        }
        self._final = 0
        self._held_since: float | None = None
        for family in FAMILIES:  # counters start at 0
            if family.kind != "histogram" and not family.labels:
                self._numbers[family.name][()] = 0
        self._settled = self._numbers[families.SETTLED.name]
        self._handled = self._durations[families.DURATION.name]
        self._counted: dict[type[Observation], Callable[[Any], None]] = {
            observe.DeliverySettled: self._count_settled,
            observe.AttemptFailed: lambda seen: self._add(families.FAILED, seen.listener),
            observe.DeadLettered: lambda seen: self._add(
                families.DEAD, seen.listener, str(seen.reason)
            ),
            observe.SuspectAttempted: lambda seen: self._add(families.SUSPECTS, seen.listener),
            observe.BatchRead: lambda seen: self._add(families.READ, seen.listener, by=seen.events),
            observe.BacklogMeasured: self._note_backlog,
            observe.HorizonRead: self._note_horizon,
            observe.Notified: lambda seen: self._add(families.NOTIFIED, seen.of),
            observe.Woken: lambda seen: self._add(families.WOKEN, seen.by),
            observe.LeaseClaimed: lambda seen: self._add(families.CLAIMED, seen.listener),
            observe.RangeTaken: lambda seen: self._add(families.CLAIMED, seen.listener),
            observe.LeaseDropped: lambda seen: self._add(families.LOST, seen.listener),
            observe.LeasesKept: self._note_leases,
            observe.PartitionDropped: lambda _: self._add(families.DROPPED),
            observe.RowsPurged: lambda seen: self._add(families.PURGED, seen.table, by=seen.rows),
            observe.ConsumerStarted: self._note_start,
            observe.ConsumerStopping: lambda _: self._set(families.RUNNING, 0),
            observe.ConsumerStopped: lambda _: self._note_stop(),
            observe.DatabaseAway: lambda _: self._add(families.AWAY),
            observe.RelayAway: lambda seen: self._add(families.RELAY_AWAY, seen.listener),
            observe.LoopBlocked: lambda _: self._add(families.BLOCKED),  # nobody else adds to it
            observe.HandlerIgnoredCancel: lambda seen: self._add(families.IGNORED, seen.listener),
            observe.Ticked: lambda seen: self._add(families.TICKED, seen.name),
            observe.ListenerOrphaned: lambda _: self._add(families.ORPHANED),
        }

    def __call__(self, observation: Observation) -> None:
        count = self._counted.get(type(observation))
        if count is not None:
            count(observation)

    def numbers(self) -> Iterator[tuple[Family, dict[Labels, float]]]:
        """Every counter and gauge, with current values. For any thread."""
        since = self._held_since
        self._set(families.HORIZON, 0.0 if since is None else monotonic() - since)
        for family in FAMILIES:
            if family.kind != "histogram":
                yield family, self._numbers[family.name].copy()

    def durations(self) -> Iterator[tuple[Family, dict[Labels, tuple[list[int], float]]]]:
        """Every histogram: how many fell into each bucket (not cumulative), and their sum."""
        for family in FAMILIES:
            if family.kind == "histogram":
                found = self._durations[family.name].copy()
                yield family, {each: (of.counts.copy(), of.total) for each, of in found.items()}

    def _add(self, family: Family, *labels: str, by: float = 1) -> None:
        numbers = self._numbers[family.name]
        numbers[labels] = numbers.get(labels, 0) + by

    def _set(self, family: Family, value: float, *labels: str) -> None:
        self._numbers[family.name][labels] = value

    def _count_settled(self, seen: observe.DeliverySettled) -> None:
        labels = seen.listener, self._bounded(seen.event_type), seen.outcome
        self._settled[labels] = self._settled.get(labels, 0) + 1
        listener = (seen.listener,)
        durations = self._handled.get(listener)
        if durations is None:
            durations = self._handled[listener] = Durations()
        durations.add(seen.seconds)

    def _bounded(self, event_type: str) -> str:
        """The log may contain anything; a label takes only names that the program declares."""
        if event_type in self._listened or event_types.version_of(event_type) is not None:
            return event_type
        return OTHER

    def _note_backlog(self, seen: observe.BacklogMeasured) -> None:
        listener = seen.listener
        self._set(families.BACKLOG, seen.events, listener)
        self._set(families.LAG, seen.seconds, listener)
        for state in ("scheduled", "parked", "behind"):
            self._set(families.WAITING, getattr(seen, state), listener, state)
        self._set(families.OPEN_DEAD, seen.dead_letters, listener)
        self._set(families.IN_FLIGHT, seen.in_flight, listener)
        self._set(families.PAUSED, int(seen.paused), listener)

    def _note_horizon(self, seen: observe.HorizonRead) -> None:
        self._durations[families.HORIZON_READ.name].setdefault((), Durations()).add(seen.seconds)
        self._set(families.POSITION, max(seen.highest, seen.ceiling))
        self._set(families.WRITERS, seen.writers)
        if seen.final >= seen.ceiling:
            self._held_since = None
        elif seen.final != self._final or self._held_since is None:
            self._held_since = monotonic()
        self._final = seen.final

    def _note_start(self, seen: observe.ConsumerStarted) -> None:
        self._set(families.RUNNING, 1)
        for listener in seen.listeners:
            self._set(families.HELD, 0, listener)
            self._add(families.FAILED, listener, by=0)  # a rate needs a number to rise from

    def _note_leases(self, seen: observe.LeasesKept) -> None:
        for labels in self._numbers[families.HELD.name]:
            self._set(families.HELD, seen.listeners.count(labels[0]), *labels)
        self._set(families.RANGES, seen.ranges)

    def _note_stop(self) -> None:
        self._set(families.RUNNING, 0)
        self._set(families.ORPHANED, 0)
        self._note_leases(observe.LeasesKept((), 0))
