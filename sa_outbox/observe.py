"""What a consumer tells about its own running: one typed stream, for logs, metrics and tests.

An observer is a function that takes an observation. It is called in the event loop, in order, and
must be quick. One that raises is reported once and called again for the next observation: a broken
metric stops no delivery. No observation holds a payload, a key or a header.

One exception: ``LoopBlocked`` is told from a thread, for the event loop is what can't speak then.
An observer may be called with it while it is busy with another observation; it must not wait for
the event loop, and what it changes for other observations needs a lock if it changes it here too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from .delivery import Reason
    from .failure import Failure

log = logging.getLogger("sa_outbox.observe")


@dataclass(slots=True)
class Observation:
    """Something that happened. Do not change it: other observers get the same object."""


Observer: TypeAlias = Callable[[Observation], object]


@dataclass(slots=True)
class ConsumerStarted(Observation):
    """The schema is verified, the listeners are registered, work begins."""

    owner: str
    listeners: tuple[str, ...]


@dataclass(slots=True)
class ConsumerStopping(Observation):
    """No new event is begun; handlers that run may finish for *grace* seconds."""

    reason: str
    grace: float


@dataclass(slots=True)
class ConsumerStopped(Observation):
    """Every lease that was held is released, or will expire."""

    owner: str


@dataclass(slots=True)
class ListenerRegistered(Observation):
    """A listener that the database did not know has got its cursor."""

    listener: str
    position: int


@dataclass(slots=True)
class ListenerChanged(Observation):
    """A listener is declared otherwise than by the consumer that held it last."""

    listener: str


@dataclass(slots=True)
class ListenerOrphaned(Observation):
    """The database has a cursor for a listener that this program does not declare.

    It holds retention back until it is retired.
    """

    listener: str
    position: int


@dataclass(slots=True)
class CopyFound(Observation):
    """This database was at home elsewhere: restored from a dump, or cloned. Listeners that act on
    the world outside wait until somebody adopts it; all others run."""

    database: str
    listeners: tuple[str, ...]
    """Those that wait."""
    command: str


@dataclass(slots=True)
class CopyAdopted(Observation):
    """The database is at home here from now on: those that waited are claimed."""

    database: str
    listeners: tuple[str, ...]


@dataclass(slots=True)
class LeaseClaimed(Observation):
    """This consumer works for the listener from now on."""

    listener: str
    token: int
    position: int
    after_crash: bool
    """The lease before expired instead of being released: the first events go one by one."""
    partition: int = 0


@dataclass(slots=True)
class RangeTaken(Observation):
    """This consumer works on these events of a queue from now on. Told often: many times a second
    by a queue that has much to do."""

    listener: str
    number: int
    """Of the range, in ``outbox_ranges``."""
    events: int | None
    """How many; None for what another process has left, which is read later."""
    after_crash: bool
    """The lease before expired: the events go one by one."""


@dataclass(slots=True)
class LeaseReleased(Observation):
    """Given back in good order; another consumer may claim it at once."""

    listener: str
    token: int
    partition: int = 0


@dataclass(slots=True)
class LeaseDropped(Observation):
    """The lease was lost: what ran under it was cancelled, and nothing of it is recorded."""

    listener: str
    token: int
    partition: int = 0


@dataclass(slots=True)
class LeasesKept(Observation):
    """What this consumer holds is renewed, three times in the life of a lease; the database has
    answered just now."""

    listeners: tuple[str, ...]
    """The listener of each cursor that it holds: of one with partitions, once for each."""
    ranges: int
    """Ranges of queues that it holds."""


@dataclass(slots=True)
class PartitionsDiffer(Observation):
    """The listener has another number of partitions in the database than it is declared with. That
    of the database holds, for every process, until it is changed with ``repartition``."""

    listener: str
    partitions: int
    declared: int


@dataclass(slots=True)
class Notified(Observation):
    """A notification came. Several may lead to one look."""

    of: Literal["events", "released", "cancelled", "adopted"]


@dataclass(slots=True)
class Woken(Observation):
    """Somebody said "look again"."""

    by: Literal["start", "notify", "poll", "reconnect", "open events"]


@dataclass(slots=True)
class Looked(Observation):
    """The horizon was looked at, once for all listeners."""

    ceiling: int
    """The highest id that was visible."""
    final: int
    """Up to here nothing can still appear."""
    writers: int
    """Transactions that may still add events below the ceiling."""
    seconds: float = 0.0
    """How long it took."""


@dataclass(slots=True)
class HorizonHeld(Observation):
    """A transaction that wrote an event has been open for long. Its event waits for its commit;
    listeners with ``order="total"`` wait for it too, for ``gap_wait`` at most."""

    pid: int | None
    """None for a prepared transaction."""
    application_name: str
    seconds: float
    transaction: str


@dataclass(slots=True)
class BatchRead(Observation):
    """Events were read from the log."""

    listener: str
    events: int
    position: int


@dataclass(slots=True)
class AttemptFailed(Observation):
    """A handler raised, or took too long."""

    listener: str
    event_id: UUID
    event_type: str
    position: int
    attempt: int
    failure: Failure
    retry_in: float | None
    """Seconds; None when this was the last attempt."""


@dataclass(slots=True)
class DeliverySettled(Observation):
    """The outcome of an attempt is committed."""

    listener: str
    event_id: UUID
    event_type: str
    position: int
    attempt: int
    outcome: Literal["done", "retry", "dead", "cancelled"]
    seconds: float
    """How long the handler ran; of a batch handler, for the whole batch."""


@dataclass(slots=True)
class DeadLettered(Observation):
    """A delivery was given up: a person has to look at it."""

    listener: str
    event_id: UUID
    event_type: str
    position: int
    attempts: int
    reason: Reason


@dataclass(slots=True)
class BacklogMeasured(Observation):
    """What waits for a listener, asked of the database every ``measure_interval``. Only for
    observers that want it: those with a true attribute ``wants_measures``."""

    listener: str
    events: int
    """Above its cursor, in its gaps, or taken from a queue. Exact up to 1000; above that by ids,
    events of other types among them."""
    seconds: float
    """Since the oldest of those was written; 0 if there is none."""
    scheduled: int
    parked: int
    behind: int
    """Deliveries with a row of their own, by state; among the first 1000."""
    dead_letters: int
    """That nobody has resolved; at most 1000 are counted."""
    in_hand: int
    """Events that handlers of this process have now."""
    paused: bool


@dataclass(slots=True)
class CaughtUp(Observation):
    """A listener has handled all that it could see."""

    listener: str
    position: int


@dataclass(slots=True)
class WentCareful(Observation):
    """After a crash: this event is attempted alone, and was counted before."""

    listener: str
    position: int
    crashes: int


@dataclass(slots=True)
class Ticked(Observation):
    """A cron has added the event of a tick."""

    name: str
    tick: datetime
    missed: int
    """How many ticks before this one have no event; 1000 stands for more too."""


@dataclass(slots=True)
class PartitionMade(Observation):
    """The log has a further partition, for the ids ``low <= id < high``."""

    partition: str
    low: int
    high: int


@dataclass(slots=True)
class PartitionDropped(Observation):
    """Every listener had passed these events, and their time was over."""

    partition: str
    low: int
    high: int


@dataclass(slots=True)
class CatchAllEmptied(Observation):
    """Events for which no partition had been made have one now."""

    partitions: tuple[str, ...]
    moved: int
    """Events; 0 if another process moved them."""


@dataclass(slots=True)
class RetentionHeld(Observation):
    """Events whose time is over are kept, because a listener needs some of them.

    If it is gone for ever: ``sa-outbox listeners retire NAME``.
    """

    listener: str
    partitions: int
    ids: int
    """In those partitions."""
    position: int
    """The lowest that it needs."""
    why: tuple[str, ...]
    """Of "cursor", "gap", "range", "delivery"."""
    since: datetime
    """When its cursor was written last."""
    paused: bool


@dataclass(slots=True)
class RetentionWaits(Observation):
    """A lock could not be had without keeping writers waiting; it is tried again later."""

    step: str
    attempts: int


@dataclass(slots=True)
class RetentionRefused(Observation):
    """The database's answer to something that only the owner of the tables may do, or for which a
    name is taken. ``sa-outbox prune`` does it as another role."""

    step: str
    error: str


@dataclass(slots=True)
class RowsPurged(Observation):
    """Rows were deleted whose time was over."""

    table: str
    rows: int


@dataclass(slots=True)
class DatabaseAway(Observation):
    """The database can't be reached or refuses; work goes on by itself when it is back."""

    where: str
    error: str
    retry_in: float


@dataclass(slots=True)
class DatabaseBack(Observation):
    """It answers again."""

    where: str


@dataclass(slots=True)
class RelayAway(Observation):
    """What a relay forwards to can't be reached. Nothing is counted; it goes on when it is back."""

    listener: str
    error: str
    retry_in: float


@dataclass(slots=True)
class RelayBack(Observation):
    """It takes messages again."""

    listener: str


@dataclass(slots=True)
class EndpointLeftOut(Observation):
    """A webhook endpoint of the database can't be served: a secret that can't be had here, say."""

    endpoint: str
    why: str


@dataclass(slots=True)
class EndpointDisabled(Observation):
    """A webhook endpoint answered that it is gone, and is disabled from now on."""

    endpoint: str
    why: str


@dataclass(slots=True)
class Listening(Observation):
    """LISTEN is on: new events are seen within milliseconds."""

    channel: str


@dataclass(slots=True)
class LoopBlocked(Observation):
    """Something blocks the event loop; leases can't be renewed while it does. Told once for each
    time, from the watchdog's thread, while it lasts."""

    seconds: float
    """So far."""
    stack: str
    """Where the thread of the event loop stands: lines of code, no values."""


@dataclass(slots=True)
class HandlerIgnoredCancel(Observation):
    """A handler went on after its time was over and it was cancelled."""

    listener: str
    position: int
    seconds: float


@dataclass(slots=True)
class HandlerReturned(Observation):
    """A handler returned a value, which nobody reads. Told once per listener."""

    listener: str
    type_name: str


class Observers:
    """Those who want to know."""

    def __init__(self, observers: tuple[Observer, ...] = ()) -> None:
        self._observers = list(observers)
        self._reported: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._observers)

    @property
    def want_measures(self) -> bool:
        """Whether one of them wants ``BacklogMeasured``."""
        return any(getattr(each, "wants_measures", False) for each in self._observers)

    def add(self, observer: Observer) -> None:
        self._observers.append(observer)

    def remove(self, observer: Observer) -> None:
        self._observers.remove(observer)

    def tell(self, observation: Observation) -> None:
        for observer in tuple(self._observers):
            try:
                observer(observation)
            except Exception:
                if id(observer) not in self._reported:
                    self._reported.add(id(observer))
                    log.exception("an observer raised; it is called for the next one all the same")
