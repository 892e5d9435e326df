"""Every metric, declared once: the numbers, the page ``docs/metrics.md`` and the tests follow.

Labels have few values: listeners and crons that the program declares, event types that it declares
(``other`` for the rest), and words of our own. Never a key, a tenant, an id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
BUCKETS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
"""Upper bounds in seconds; above the last one is infinity."""


@dataclass(frozen=True, slots=True)
class Family:
    """A metric. The samples of a counter end in ``_total``."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    text: str


def _counter(name: str, text: str, *labels: str) -> Family:
    return Family(f"sa_outbox_{name}", "counter", labels, text)


def _gauge(name: str, text: str, *labels: str) -> Family:
    return Family(f"sa_outbox_{name}", "gauge", labels, text)


def _histogram(name: str, text: str, *labels: str) -> Family:
    return Family(f"sa_outbox_{name}", "histogram", labels, text)


# Deliveries
SETTLED = _counter(
    "deliveries_settled",
    "Attempts whose outcome is committed: done, retry, dead, cancelled.",
    *("listener", "event_type", "outcome"),
)
FAILED = _counter("attempts_failed", "Handlers that raised, or took too long.", "listener")
DURATION = _histogram("handler_seconds", "How long handlers ran.", "listener")
DEAD = _counter("dead_letters", "Deliveries given up.", "listener", "reason")
CAREFUL = _counter("careful_attempts", "Attempts alone, after a crash.", "listener")

# What waits
BACKLOG = _gauge("backlog_events", "Events that the listener has not handled.", "listener")
LAG = _gauge("lag_seconds", "Since the oldest of those was written.", "listener")
WAITING = _gauge("waiting_deliveries", "Deliveries with a row of their own.", "listener", "state")
OPEN_DEAD = _gauge("open_dead_letters", "Dead letters that nobody has resolved.", "listener")
IN_HAND = _gauge("in_hand", "Events that handlers of this process have now.", "listener")
PAUSED = _gauge("paused", "1 while the listener is paused.", "listener")

# Reading
READ = _counter("events_read", "Events read from the log.", "listener")
POSITION = _gauge("log_position", "The highest id of the log that was visible.")
LOOKED = _histogram("look_seconds", "How long a look at the horizon took.")
NOTIFIED = _counter("notifications", "Notifications that came.", "of")
WOKEN = _counter("wakeups", "Looks, by what led to them.", "by")
HORIZON = _gauge("horizon_age_seconds", "For how long the horizon has stood below the log's end.")
WRITERS = _gauge("open_writers", "Transactions that may still add events below the log's end.")

# Leases
CLAIMED = _counter("leases_claimed", "Cursors and ranges of queues that were claimed.", "listener")
LOST = _counter("leases_lost", "Leases that were lost while they were worked under.", "listener")
HELD = _gauge("leases_held", "Cursors that this consumer holds.", "listener")
RANGES = _gauge("ranges_held", "Ranges of queues that this consumer holds.")

# Retention
DROPPED = _counter("partitions_dropped", "Partitions of the log that were dropped.")
PURGED = _counter("rows_purged", "Rows of other tables whose time was over.", "table")

# The process
RUNNING = _gauge("consumer_running", "1 while the consumer works, 0 before and after.")
AWAY = _counter("database_away", "Times that the database could not be reached, or refused.")
RELAY_AWAY = _counter(
    "relay_away", "Times that a relay could not reach what it forwards to.", "listener"
)
BLOCKED = _counter("loop_blocked", "Times that something blocked the event loop.")
IGNORED = _counter("cancels_ignored", "Handlers that went on after their cancellation.", "listener")
TICKED = _counter("ticks", "Events that crons have added.", "cron")
ORPHANED = _gauge("orphaned_listeners", "Cursors in the database that nobody here declares.")

FAMILIES: Final = tuple(each for each in tuple(vars().values()) if isinstance(each, Family))
