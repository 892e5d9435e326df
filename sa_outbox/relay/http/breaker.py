"""One endpoint's state: good, resting, or gone. Pure: time is an argument.

Two things must not happen to an endpoint that is down. A thousand events must not be attempted
against it in turn, each waiting for its own timeout and using up its own attempts. And it must not
be waited for silently forever. So: after ``FAILURES`` in a row that concern the endpoint (no
connection, no answer, 502 to 504) the breaker opens. While it is open, nothing is sent and nothing
counted, and the relay is *away*; every ``probe_seconds`` one event is sent as a probe, and counts.
The first answer of any other kind closes it. And an event that is older than ``give_up_after``,
whose endpoint we have seen down for an hour, is given up: a dead letter that can be replayed. Age
alone would not do, because a rewound listener sends old events; nor the length of the outage alone,
because a process that is deployed daily never sees a long one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FAILURES = 5
LONG_DOWN_SECONDS = 3600.0
"""Seconds of an outage after which old events are given up."""
GONE_SECONDS = 3600.0
"""Seconds after a 410 response in which nothing is sent."""


@dataclass(slots=True)
class Breaker:
    probe_seconds: float
    """Seconds between two probes while the breaker is open."""
    failures: int = 0
    """Consecutive failures."""
    down_since: float | None = None
    rest_until: float = 0.0
    gone_until: float = 0.0

    def ask(self, now: float) -> Literal["go", "rest", "gone"]:
        """Whether to send. Of those that ask when a pause ends, one goes, and the others keep
        waiting until it has its answer, or the next one may try."""
        if self.is_gone(now):
            return "gone"
        if now < self.rest_until:
            return "rest"
        if self.down_since is not None:
            self.rest_until = now + self.probe_seconds
        return "go"

    def succeeded(self) -> None:
        """It answered, whatever it said: it is not down."""
        self.failures, self.down_since, self.rest_until = 0, None, 0.0

    def failed(self, now: float) -> None:
        self.failures += 1
        if self.failures >= FAILURES:
            self.down_since = now if self.down_since is None else self.down_since
            self.rest_until = max(self.rest_until, now + self.probe_seconds)

    def asked_to_wait(self, now: float, seconds: float) -> None:
        """It is up, and wants nothing for a while."""
        self.succeeded()
        self.rest_until = now + seconds

    def answered_gone(self, now: float) -> None:
        self.succeeded()
        self.gone_until = now + GONE_SECONDS

    def is_gone(self, now: float) -> bool:
        """Asking changes nothing: it uses up nobody's turn."""
        return now < self.gone_until

    def is_long_down(self, now: float) -> bool:
        return self.down_since is not None and now - self.down_since >= LONG_DOWN_SECONDS
