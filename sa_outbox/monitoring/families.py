"""Every metric, declared once: the exported numbers, ``docs/metrics.md`` and the tests follow.

Labels have few values: listeners, crons and queues that the program declares; a limited number of
event types and classes of errors, ``other`` for the rest; and fixed words. Never a key, a tenant or
an id.
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
ATTEMPT_BUCKETS: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 25.0)


@dataclass(frozen=True, slots=True)
class Family:
    """A metric. The samples of a counter end in ``_total``."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    text: str
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram."""


def _counter(name: str, text: str, *labels: str) -> Family:
    return Family(f"sa_outbox_{name}", "counter", labels, text)


def _gauge(name: str, text: str, *labels: str) -> Family:
    return Family(f"sa_outbox_{name}", "gauge", labels, text)


def _histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...] = BUCKETS) -> Family:
    return Family(f"sa_outbox_{name}", "histogram", labels, text, buckets)


# Adding
ADDED = _counter(
    "events_added", "Events that sessions of this process have committed.", "event_type", "queue"
)

# Deliveries
SETTLED = _counter(
    "deliveries_settled",
    "Attempts whose outcome is committed: done, retry, dead, cancelled.",
    *("listener", "event_type", "outcome"),
)
FAILED = _counter("attempts_failed", "Handlers that raised or timed out.", "listener")
ERRORS = _counter("attempt_errors", "Those, by the class of the error.", "listener", "error")
DURATION = _histogram("handler_seconds", "How long handlers ran.", "listener", "event_type")
ATTEMPTS = _histogram(
    "delivery_attempts",
    "Attempts that a delivery took until it was done or given up.",
    "listener",
    buckets=ATTEMPT_BUCKETS,
)
DEAD = _counter("dead_letters", "Deliveries given up.", "listener", "reason")
SUSPECTS = _counter("suspect_attempts", "Attempts alone, after a crash.", "listener")

# What waits
BACKLOG = _gauge("backlog_events", "Events that the listener has not handled.", "listener")
LAG = _gauge("lag_seconds", "Age of the oldest of those.", "listener")
WAITING = _gauge("waiting_deliveries", "Deliveries with a row of their own.", "listener", "state")
OPEN_DEAD = _gauge("open_dead_letters", "Dead letters that nobody has resolved.", "listener")
IN_FLIGHT = _gauge("in_flight", "Events that handlers of this process have now.", "listener")
PAUSED = _gauge("paused", "1 while the listener is paused.", "listener")

# Reading
READ = _counter("events_read", "Events read from the log.", "listener")
POSITION = _gauge("log_position", "The highest id the log has reached.")
HORIZON_READ = _histogram("horizon_read_seconds", "How long reading the horizon took.")
NOTIFIED = _counter("notifications", "Notifications that came.", "of")
WOKEN = _counter("wakeups", "Wakeups, by cause.", "by")
HORIZON = _gauge("horizon_age_seconds", "How long the horizon has been below the log's end.")
WRITERS = _gauge("open_writers", "Transactions that may still add events below the log's end.")

# Leases
CLAIMED = _counter("leases_claimed", "Cursors and ranges of queues that were claimed.", "listener")
LOST = _counter("leases_lost", "Leases that were lost while in use.", "listener")
HELD = _gauge("leases_held", "Cursors that this consumer holds.", "listener")
RANGES = _gauge("ranges_held", "Ranges of queues that this consumer holds.")
DELIVERIES = _counter("deliveries_claimed", "Deliveries that queues have claimed.", "listener")

# Retention
DROPPED = _counter("partitions_dropped", "Partitions of the log that were dropped.")
PURGED = _counter("rows_purged", "Expired rows that were deleted, by table.", "table")

# The process
RUNNING = _gauge("consumer_running", "1 while the consumer works, 0 before and after.")
AWAY = _counter("database_away", "Times the database was unreachable or refused.")
RELAY_AWAY = _counter("relay_away", "Times a relay could not reach its receiver.", "listener")
BLOCKED = _counter("loop_blocked", "Times something blocked the event loop.")
IGNORED = _counter(
    "cancels_ignored", "Handlers that kept running after being cancelled.", "listener"
)
TICKED = _counter("ticks", "Events that crons have added.", "cron")
ORPHANED = _gauge("orphaned_listeners", "Cursors in the database of undeclared listeners.")

FAMILIES: Final = tuple(each for each in tuple(vars().values()) if isinstance(each, Family))
