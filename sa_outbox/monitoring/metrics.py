"""Counts what a consumer reports, and what sessions have added.

Plain numbers in dicts, changed in the event loop without a lock and copied on request: a batch of
events costs a few additions, whatever library reads them. Copying a dict or a list is one atomic
step for the reading thread; a number added meanwhile appears in the next answer. Sessions commit in
any thread, so what they have added is counted under a lock.
"""

from __future__ import annotations

from bisect import bisect_left
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

from sa_outbox import observe
from sa_outbox.errors import ConfigError
from sa_outbox.event.types import event_types
from sa_outbox.event.validation import is_event_type

from . import families
from .families import FAMILIES
from .label_values import LabelValues

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sa_outbox.observe import Observation
    from sa_outbox.outbox import Outbox

    from .families import Family

Labels: TypeAlias = tuple[str, ...]
MAX_ERRORS = 50
"""How many classes of errors are shown; the rest is ``other``."""


class Histogram:
    """How many values fell below each bound, and their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts: list[int] = [0] * (len(bounds) + 1)
        self.total: float = 0.0

    def add(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self._bounds, value)] += times
        self.total += value * times

    def add_all(self, values: Sequence[float]) -> None:
        self.total += sum(values)
        if max(values) <= self._bounds[0]:  # as for most handlers that are quick
            self.counts[0] += len(values)
            return
        counts, bounds = self.counts, self._bounds
        for value in values:
            counts[bisect_left(bounds, value)] += 1


class Metrics:
    """An observer that keeps the numbers of ``families``.

    ::

        metrics = Metrics(outbox)
        consumer = Consumer(outbox, engine, observers=[metrics])

    ``prometheus.register(metrics)`` adds them to a registry; ``Monitor`` serves them. For what the
    sessions of a process add: ``outbox.observers.add(metrics)``.

    The first *max_event_types* types that are seen are shown by name, and those that the program
    declares; the rest is ``other``.
    """

    wants_measures = True
    wants_batches = True

    def __init__(self, outbox: Outbox, *, max_event_types: int = 100) -> None:
        if type(max_event_types) is not int or max_event_types < 0:
            raise ConfigError(f"max_event_types is a number from 0, not {max_event_types!r}")
        listened = {each for listener in outbox.listeners for each in listener.on}
        self._event_type = LabelValues(
            max_event_types,
            declared=lambda name: name in listened or event_types.knows(name),
            valid=is_event_type,
        )
        self._error = LabelValues(MAX_ERRORS)
        self._category_of = outbox.category_of
        self._adding = Lock()
        self._numbers: dict[str, dict[Labels, float]] = {
            each.name: {} for each in FAMILIES if each.kind != "histogram"
        }
        self._histograms: dict[str, dict[Labels, Histogram]] = {
            each.name: {} for each in FAMILIES if each.kind == "histogram"
        }
        self._final = 0
        self._held_since: float | None = None
        for family in FAMILIES:  # counters start at 0
            if family.kind != "histogram" and not family.labels:
                self._numbers[family.name][()] = 0
        self._counted: dict[type[Observation], Callable[[Any], None]] = {
            observe.EventsAdded: self._count_added,
            observe.BatchSettled: self._count_settled,
            observe.AttemptFailed: self._count_failed,
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
            observe.RangeTaken: self._count_range,
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

    def histograms(self) -> Iterator[tuple[Family, dict[Labels, tuple[list[int], float]]]]:
        """Every histogram: how many fell into each bucket (not cumulative), and their sum."""
        for family in FAMILIES:
            if family.kind == "histogram":
                found = self._histograms[family.name].copy()
                yield family, {each: (of.counts.copy(), of.total) for each, of in found.items()}

    def _add(self, family: Family, *labels: str, by: float = 1) -> None:
        numbers = self._numbers[family.name]
        numbers[labels] = numbers.get(labels, 0) + by

    def _set(self, family: Family, value: float, *labels: str) -> None:
        self._numbers[family.name][labels] = value

    def _histogram(self, family: Family, *labels: str) -> Histogram:
        found = self._histograms[family.name]
        if labels not in found:
            found[labels] = Histogram(family.buckets)
        return found[labels]

    def _count_added(self, seen: observe.EventsAdded) -> None:
        with self._adding:
            for event_type, count in seen.events.items():
                queue = self._category_of(event_type).queue
                self._add(families.ADDED, self._event_type(event_type), queue, by=count)

    def _count_settled(self, seen: observe.BatchSettled) -> None:
        listener = seen.listener
        for group in seen.groups:
            event_type, count = self._event_type(group.event_type), len(group.seconds)
            self._add(families.SETTLED, listener, event_type, group.outcome, by=count)
            self._histogram(families.DURATION, listener, event_type).add_all(group.seconds)
            if group.outcome in ("done", "dead"):
                self._histogram(families.ATTEMPTS, listener).add(group.attempt, count)

    def _count_failed(self, seen: observe.AttemptFailed) -> None:
        self._add(families.FAILED, seen.listener)
        self._add(families.ERRORS, seen.listener, self._error(seen.failure.error))

    def _count_range(self, seen: observe.RangeTaken) -> None:
        self._add(families.CLAIMED, seen.listener)
        self._add(families.DELIVERIES, seen.listener, by=seen.events)

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
        self._histogram(families.HORIZON_READ).add(seen.seconds)
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
