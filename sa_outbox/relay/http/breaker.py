"""One endpoint's state: good, resting, or gone. Pure: time is an argument.

Two things must not happen to an endpoint that is down. Each of a thousand events must not be
attempted against it in turn, each waiting for its own timeout and using up its own attempts. And it
must not be waited for silently for ever. So: after ``FAILURES`` in a row that say something about
the endpoint (no connection, no answer, 502 to 504) it rests. While it rests nothing is sent and
nothing counted, the relay is *away*; every ``PROBE`` seconds one event is sent all the same, and
counts. The first answer of any other kind ends the rest. And an event that is older than
``give_up_after``, whose endpoint has been down for an hour before our eyes, is given up: a dead
letter, that can be replayed. Age alone would not do, for a listener that was rewound sends what is
old; nor the length of the outage alone, for a process that is deployed daily never sees a longer
one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FAILURES = 5
PROBE = 30.0
"""Seconds."""
LONG_DOWN = 3600.0
"""Seconds of resting after which old events are given up."""
GONE_FOR = 3600.0
"""Seconds after an answer 410 in which nothing is sent."""


@dataclass(slots=True)
class Breaker:
    failures: int = 0
    """In a row."""
    down_since: float | None = None
    rest_until: float = 0.0
    gone_until: float = 0.0

    def ask(self, now: float) -> Literal["go", "rest", "gone"]:
        """Whether to send. Of those that ask when a rest ends one goes, and the others rest on
        until it has its answer, or the next one may try."""
        if self.is_gone(now):
            return "gone"
        if now < self.rest_until:
            return "rest"
        if self.down_since is not None:
            self.rest_until = now + PROBE
        return "go"

    def succeeded(self) -> None:
        """It answered, whatever it said: it is not down."""
        self.failures, self.down_since, self.rest_until = 0, None, 0.0

    def failed(self, now: float) -> None:
        self.failures += 1
        if self.failures >= FAILURES:
            self.down_since = now if self.down_since is None else self.down_since
            self.rest_until = max(self.rest_until, now + PROBE)

    def asked_to_wait(self, now: float, seconds: float) -> None:
        """It is there, and wants nothing for a while."""
        self.succeeded()
        self.rest_until = now + seconds

    def answered_gone(self, now: float) -> None:
        self.succeeded()
        self.gone_until = now + GONE_FOR

    def is_gone(self, now: float) -> bool:
        """Asking changes nothing: it takes nobody's turn to try."""
        return now < self.gone_until

    def is_long_down(self, now: float) -> bool:
        return self.down_since is not None and now - self.down_since >= LONG_DOWN
