"""What a consumer reports about itself: one typed stream, for logs, metrics and tests.

An observer is a function that takes an observation. It is called in the event loop, in order, and
must be quick. If one raises, that is logged once, and it is still called for later observations: a
broken metric never stops a delivery. No observation holds a payload or a key; of the headers, only
those that ``event/origin.py`` names.

``EventsAdded`` comes from the side that adds events: from ``outbox.observers``, in the thread that
committed. All others come from a consumer.

Attributes of an observer (or of the function itself) choose what it gets: ``wants_measures``,
``BacklogMeasured`` too; ``wants_batches``, one ``BatchSettled`` for many deliveries instead of a
``DeliverySettled`` for each, which costs a tenth; a false ``wants_settled``, neither of them;
``wants_starts``, ``DeliveryStarted`` too; ``wants_only``, a set of classes, no observations of
others.

One exception: ``LoopBlocked`` is emitted from a thread, because the event loop is blocked at that
moment. An observer may receive it while it is still processing another observation. It must not
wait for the event loop, and it needs a lock around any state that it changes both here and for
other observations.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from .event.origin import Origin

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from .policy.delivery import Reason
    from .policy.failure import Failure

log: logging.Logger = logging.getLogger("sa_outbox.observe")


@dataclass(slots=True)
class Observation:
    """Something that happened. Treat it as immutable: all observers get the same object."""


Observer: TypeAlias = Callable[[Observation], object]
F = TypeVar("F", bound=Callable[..., object])
Settled: TypeAlias = Literal["done", "retry", "dead", "cancelled"]
PlaceKind: TypeAlias = Literal[
    "LISTEN",
    "alerts",
    "crons",
    "endpoints",
    "handler",
    "horizon",
    "leases",
    "listener",
    "measuring",
    "queue",
    "retention",
    "wake",
]


@dataclass(frozen=True, slots=True)
class Place:
    """A part of a consumer that works with the database by itself, and loses it by itself: a
    handler's engine may refuse while the consumer's own connections are fine."""

    kind: PlaceKind
    name: str | None = None
    """The listener's, if the place belongs to one: "listener", "queue" and "handler"."""

    def __str__(self) -> str:
        if self.name is None:
            return self.kind
        return f"handler of {self.name}" if self.kind == "handler" else f"{self.kind} {self.name}"


def in_batches(observer: F) -> F:
    """Decorator: this function or method gets ``BatchSettled`` instead of ``DeliverySettled``."""
    observer.wants_batches = True  # type: ignore[attr-defined]  # functions have attributes
    return observer


@dataclass(slots=True)
class EventsAdded(Observation):
    """A session has committed a transaction with events. Emitted by ``outbox.observers``, once for
    each commit, in the thread that committed."""

    events: dict[str, int]
    """How many of each event type."""


@dataclass(slots=True)
class ConsumerStarted(Observation):
    """The schema is verified, the listeners are registered, and work begins."""

    owner: str
    listeners: tuple[str, ...]


@dataclass(slots=True)
class ConsumerStopping(Observation):
    """No new event is started; running handlers may finish for *grace* seconds."""

    reason: str
    grace: float
    restarts: bool = False
    """It restarts after that, with the webhook endpoints that there are then; or it sleeps."""


@dataclass(slots=True)
class ConsumerStopped(Observation):
    """Every lease that was held is released, or will expire."""

    owner: str


@dataclass(slots=True)
class ConsumerAsleep(Observation):
    """There was nothing to do for ``idle_after``: it has closed its connections."""

    seconds: float | None
    """Until something that it knows is due; None: it has to be woken."""


@dataclass(slots=True)
class ConsumerAwake(Observation):
    """It was asleep and restarts."""

    by: str
    """``wake``: by ``Consumer.wake``. ``time``: something is due. ``events``: this process added
    some. ``stop``: only to end."""


@dataclass(slots=True)
class ListenerRegistered(Observation):
    """A listener that was new to the database now has a cursor."""

    listener: str
    position: int


@dataclass(slots=True)
class ListenerChanged(Observation):
    """A listener is declared differently than by the consumer that held it last."""

    listener: str


@dataclass(slots=True)
class ListenerOrphaned(Observation):
    """The database has a cursor for a listener that this program does not declare.

    It blocks retention until it is retired.
    """

    listener: str
    position: int


@dataclass(slots=True)
class CopyFound(Observation):
    """This database came from another server: it was restored from a dump, or cloned. Listeners
    that act on the outside world wait until someone adopts it; all others run."""

    database: str
    listeners: tuple[str, ...]
    """The listeners that wait."""
    command: str


@dataclass(slots=True)
class CopyAdopted(Observation):
    """This server is the database's home from now on: listeners that waited are claimed."""

    database: str
    listeners: tuple[str, ...]


@dataclass(slots=True)
class LeaseClaimed(Observation):
    """This consumer now works on the listener."""

    listener: str
    token: int
    position: int
    after_crash: bool
    """The previous lease expired instead of being released: the first events are handled few at
    a time."""
    partition: int = 0


@dataclass(slots=True)
class RangeTaken(Observation):
    """This consumer now works on these events of a queue. Emitted often: many times a second by a
    busy queue."""

    listener: str
    number: int
    """The range's number in ``outbox_ranges``."""
    events: int
    """How many events: of a range that another process left behind, those that are not settled."""
    after_crash: bool
    """The previous lease expired: the events are handled few at a time."""


@dataclass(slots=True)
class LeaseReleased(Observation):
    """The lease was released properly; another consumer may claim it at once."""

    listener: str
    token: int
    partition: int = 0


@dataclass(slots=True)
class LeaseDropped(Observation):
    """The lease was lost: whatever ran under it was cancelled, and none of it is recorded."""

    listener: str
    token: int
    partition: int = 0


@dataclass(slots=True)
class CommitsLost(Observation):
    """The database has lost events that this process had read: a lagging standby was promoted, or a
    server crashed with ``synchronous_commit=off``. The listeners start over from their rows."""

    position: int
    """The newest event that was read; it no longer exists."""


@dataclass(slots=True)
class LeasesKept(Observation):
    """Everything this consumer holds was renewed, which happens three times in the life of a lease:
    the database has just answered."""

    listeners: tuple[str, ...]
    """The listener of each cursor that it holds; one with partitions appears once per partition."""
    ranges: int
    """How many queue ranges it holds."""


@dataclass(slots=True)
class PartitionsDiffer(Observation):
    """The listener has a different number of partitions in the database than it is declared with.
    The database's number applies, for every process, until ``repartition`` changes it."""

    listener: str
    partitions: int
    declared: int


@dataclass(slots=True)
class Notified(Observation):
    """A notification arrived. Several may lead to a single check of the horizon."""

    of: Literal["events", "released", "cancelled", "adopted"]


@dataclass(slots=True)
class Woken(Observation):
    """The consumer was woken to check for events."""

    by: Literal["start", "notify", "poll", "reconnect", "open events"]


@dataclass(slots=True)
class HorizonRead(Observation):
    """The horizon was read, once for all listeners."""

    ceiling: int
    """The highest visible id."""
    final: int
    """Nothing can still appear up to this id."""
    writers: int
    """Transactions that may still add events below the ceiling."""
    seconds: float = 0.0
    """How long the read took."""
    highest: int = 0
    """The highest id the log has ever reached. Unlike the ceiling, it does not fall when retention
    deletes the newest events."""


@dataclass(slots=True)
class HorizonHeld(Observation):
    """A transaction that wrote an event has been open for a long time. The event waits for its
    commit; listeners with ``order="total"`` wait too, for at most ``gap_wait``."""

    pid: int | None
    """None for a prepared transaction."""
    application_name: str
    seconds: float
    transaction: str


@dataclass(slots=True)
class IdsNotDrawn(Observation):
    """Some events have explicitly chosen ids (``OVERRIDING SYSTEM VALUE``, COPY) above the last one
    the sequence produced. They are not delivered until the sequence has reached them."""

    first: int
    last: int
    count: int
    """Counted up to one thousand."""


@dataclass(slots=True)
class BatchRead(Observation):
    """Events were read from the log."""

    listener: str
    events: int
    position: int


@dataclass(slots=True)
class DeliveryStarted(Observation):
    """A handler is about to be called. Emitted before each attempt, for each event of a batch; only
    for observers that want it: those whose attribute ``wants_starts`` is ``"all"`` or
    ``"queues"``."""

    listener: str
    event_id: UUID
    event_type: str
    position: int
    attempt: int
    owner: str
    """The consumer that calls it, as in ``outbox_consumers``: host, process id, a random part."""
    is_queue: bool
    origin: Origin = field(default_factory=Origin)


@dataclass(slots=True)
class AttemptFailed(Observation):
    """A handler raised, or timed out."""

    listener: str
    event_id: UUID
    event_type: str
    position: int
    attempt: int
    failure: Failure
    """Class, code, text, traceback and fingerprint of the error. The text may quote data."""
    retry_in: float | None
    """Seconds; None when this was the last attempt."""
    origin: Origin = field(default_factory=Origin)


@dataclass(slots=True)
class DeliverySettled(Observation):
    """The outcome of an attempt is committed."""

    listener: str
    event_id: UUID
    event_type: str
    position: int
    attempt: int
    outcome: Settled
    seconds: float
    """How long the handler ran; for a batch handler, the whole batch."""
    origin: Origin = field(default_factory=Origin)


@dataclass(slots=True)
class SettledGroup:
    """Those of a ``BatchSettled`` that have the same type, attempt and outcome."""

    event_type: str
    attempt: int
    outcome: Settled
    seconds: list[float]
    """How long the handler of each of them ran."""


@dataclass(slots=True)
class BatchSettled(Observation):
    """The outcomes of one or more attempts are committed. Only for observers that have a true
    attribute ``wants_batches``; they get no ``DeliverySettled``."""

    listener: str
    groups: tuple[SettledGroup, ...]


@dataclass(slots=True)
class DeadLettered(Observation):
    """A delivery was given up and needs an operator's attention."""

    listener: str
    event_id: UUID
    event_type: str
    position: int
    attempts: int
    reason: Reason
    origin: Origin = field(default_factory=Origin)
    failure: Failure | None = None
    """What it was given up for: that of the last attempt, or why there was none. The text may quote
    data."""


@dataclass(slots=True)
class AlertsSwallowed(Observation):
    """Alerts are missing in the log: a rule or trigger on it has swallowed them. What they are
    about is written all the same; ``sa-outbox doctor`` names the rule or trigger."""

    alerts: int
    """How many."""


@dataclass(slots=True)
class BacklogMeasured(Observation):
    """A listener's backlog, read from the database every ``measure_interval``. Only for observers
    that want it: those with a true attribute ``wants_measures``."""

    listener: str
    events: int
    """Events of its types above its cursor, in its gaps, or claimed from a queue. Exact if fewer
    than 1000 events of any type are above its cursor; otherwise estimated from the first 1000."""
    seconds: float
    """Age of the oldest of those; 0 if there is none."""
    scheduled: int
    parked: int
    behind: int
    """Deliveries with a row of their own, by state; among the first 1000."""
    dead_letters: int
    """That nobody has resolved; at most 1000 are counted."""
    in_flight: int
    """Events that handlers of this process have now."""
    paused: bool


@dataclass(slots=True)
class CaughtUp(Observation):
    """A listener has handled everything that was visible to it."""

    listener: str
    position: int


@dataclass(slots=True)
class SuspectAttempted(Observation):
    """After a crash: this event is attempted alone, and the attempt was counted beforehand."""

    listener: str
    event_id: UUID
    event_type: str
    position: int
    attempt: int
    crashes: int
    origin: Origin = field(default_factory=Origin)


@dataclass(slots=True)
class Ticked(Observation):
    """A cron added the event of a tick."""

    name: str
    tick: datetime
    missed: int
    """How many earlier ticks have no event; 1000 means 1000 or more."""


@dataclass(slots=True)
class PartitionMade(Observation):
    """The log has a new partition, for the ids ``low <= id < high``."""

    partition: str
    low: int
    high: int


@dataclass(slots=True)
class PartitionDropped(Observation):
    """A partition was dropped: every listener had passed its events, and their retention was
    over."""

    partition: str
    low: int
    high: int


@dataclass(slots=True)
class CatchAllEmptied(Observation):
    """Events that had landed in the catch-all partition now have a partition of their own."""

    partitions: tuple[str, ...]
    moved: int
    """How many events; 0 if another process moved them."""


@dataclass(slots=True)
class RetentionHeld(Observation):
    """Events past their retention are kept because a listener still needs some of them.

    If the listener is gone forever: ``sa-outbox listeners retire NAME``.
    """

    listener: str
    partitions: int
    ids: int
    """How many ids those partitions cover."""
    position: int
    """The lowest position that it needs."""
    why: tuple[str, ...]
    """Any of "cursor", "gap", "range", "delivery"."""
    since: datetime
    """When its cursor was last written."""
    paused: bool


@dataclass(slots=True)
class RetentionWaits(Observation):
    """A lock could not be acquired without making writers wait; it is retried later."""

    step: str
    attempts: int


@dataclass(slots=True)
class RetentionRefused(Observation):
    """The database refused something that only the owner of the tables may do, or a name is already
    taken. ``sa-outbox prune`` can do it under another role."""

    step: str
    error: str


@dataclass(slots=True)
class RowsPurged(Observation):
    """Expired rows were deleted."""

    table: str
    rows: int


@dataclass(slots=True)
class EventsGone(Observation):
    """Deliveries of a listener were waiting for events that are no longer in the log: someone
    deleted them by hand. The deliveries were deleted too; no handler gets these events."""

    listener: str
    deliveries: int
    position: int
    """The lowest position among them."""


@dataclass(slots=True)
class DatabaseAway(Observation):
    """The database is unreachable or refuses; work resumes by itself when it is back."""

    where: Place
    error: str
    retry_in: float


@dataclass(slots=True)
class DatabaseBack(Observation):
    """The database answers again."""

    where: Place


@dataclass(slots=True)
class RelayAway(Observation):
    """A relay's receiver is unreachable. No attempts are counted; the relay resumes when it is
    back."""

    listener: str
    error: str
    retry_in: float


@dataclass(slots=True)
class RelayBack(Observation):
    """The relay's receiver accepts messages again."""

    listener: str


@dataclass(slots=True)
class EndpointLeftOut(Observation):
    """A webhook endpoint in the database can't be served: its secret is not available here, for
    example."""

    endpoint: str
    why: str


@dataclass(slots=True)
class EndpointDisabled(Observation):
    """A webhook endpoint answered that it is gone, and is now disabled."""

    endpoint: str
    why: str


@dataclass(slots=True)
class Listening(Observation):
    """LISTEN is on: new events are seen within milliseconds."""

    channel: str


@dataclass(slots=True)
class LoopBlocked(Observation):
    """Something is blocking the event loop, and leases can't be renewed meanwhile. Emitted once per
    block, while it lasts, from the watchdog's thread."""

    seconds: float
    """How long it has been blocked so far."""
    stack: str
    """The stack of the event loop's thread: lines of code, no values."""


@dataclass(slots=True)
class HandlerIgnoredCancel(Observation):
    """A handler kept running after it timed out and was cancelled. For a batch handler, the event
    is the first of the batch."""

    listener: str
    event_id: UUID
    event_type: str
    position: int
    attempt: int
    seconds: float
    origin: Origin = field(default_factory=Origin)


@dataclass(slots=True)
class HandlerReturned(Observation):
    """A handler returned a value, which is ignored. Emitted once per listener."""

    listener: str
    type_name: str


class Observers:
    """The observers of one consumer or outbox; calls each of them with every observation."""

    def __init__(self, observers: tuple[Observer, ...] = ()) -> None:
        self._observers = list(observers)
        self._reported: set[int] = set()
        self._sort()

    def __bool__(self) -> bool:
        return bool(self.all)

    @property
    def want_measures(self) -> bool:
        """Whether any of them wants ``BacklogMeasured``."""
        return any(getattr(each, "wants_measures", False) for each in self._observers)

    def include(self, kind: type) -> bool:
        """Whether one of them is a *kind*."""
        return any(isinstance(each, kind) for each in self._observers)

    def add(self, observer: Observer) -> None:
        """From now on *observer* gets what it wants, after those that were added earlier."""
        self._observers.append(observer)
        self._sort()

    def remove(self, observer: Observer) -> None:
        """It gets nothing more. Raises ``ValueError`` if it is not there."""
        self._observers.remove(observer)
        self._sort()

    @contextmanager
    def including(self, observer: Observer) -> Iterator[None]:
        """With this one as well, meanwhile."""
        self.add(observer)
        try:
            yield
        finally:
            self.remove(observer)

    def emit(self, observation: Observation) -> None:
        """Call every observer that wants this kind of observation. Never raises: an observer that
        does is logged, once."""
        cls = type(observation)
        wanting = self._wanting.get(cls)
        if wanting is None:
            wanting = tuple(e for e in self.all if cls in getattr(e, "wants_only", (cls,)))
            self._wanting[cls] = wanting
        self._emit(observation, wanting)

    def emit_batch(self, settled: BatchSettled) -> None:
        """Emit to those that want batches."""
        self._emit(settled, self.batched)

    def emit_each(self, settled: DeliverySettled) -> None:
        """Emit to those that want each delivery."""
        self._emit(settled, self.single)

    def _emit(self, observation: Observation, observers: tuple[Observer, ...]) -> None:
        for observer in observers:
            try:
                observer(observation)
            except Exception:
                if id(observer) not in self._reported:
                    self._reported.add(id(observer))
                    log.exception("an observer raised; later observations still reach it")

    def _sort(self) -> None:
        self.all: tuple[Observer, ...] = tuple(self._observers)
        self._wanting: dict[type[Observation], tuple[Observer, ...]] = {}
        self.batched: tuple[Observer, ...] = tuple(
            each for each in self.all if getattr(each, "wants_batches", False)
        )
        """Those that get ``BatchSettled``."""
        self.single: tuple[Observer, ...] = tuple(
            each
            for each in self.all
            if each not in self.batched and getattr(each, "wants_settled", True)
        )
        """Those that get ``DeliverySettled``."""
        starts = {getattr(each, "wants_starts", "none") for each in self.all}
        self.want_starts: bool = "all" in starts
        """Whether any of them gets ``DeliveryStarted``. Asked for each event."""
        self.want_starts_of_queues: bool = not starts.isdisjoint({"all", "queues"})
