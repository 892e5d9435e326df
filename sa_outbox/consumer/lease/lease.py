"""The right to work on a listener: a term that ends by itself, identified by its token."""

from __future__ import annotations

import json
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio

from sa_outbox.errors import LeaseLost

from ..connection.connections import best_effort
from ..position.progress import Saved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from anyio import CancelScope

    from ..connection.connections import Connections, Query
    from ..position.progress import Progress

TRUSTED = 0.8
"""Fraction of its duration for which the holder trusts a lease: it stops before the database would
give the listener to another process, whatever the two clocks say."""
RELEASE_SECONDS = 2.0
"""Seconds to release a range; after that its lease expires by itself."""


class Lease:
    """One term of one listener.

    Invariant: everything written under it is written in a transaction whose last statement found
    the listener's row with this token; whoever claims the listener raises the token first, with an
    UPDATE of that row. So the two are ordered, and after the claim nothing of an older term can be
    written: not by a process that was suspended, not by a delayed packet.
    """

    def __init__(
        self, row: Any, *, duration: float, began: float, clock: Callable[[], float] = monotonic
    ) -> None:
        """*began*: when the statement that claimed it was started, by *clock*: it counts
        seconds."""
        self.listener: str = row["name"]
        self.part: int = row["part"]
        """Which partition of the listener, or which range of a queue."""
        self.key: tuple[str, int] = (self.listener, self.part)
        self.partition: int = row.get("partition", self.part)
        self.count: int = row.get("count", 1)
        """How many partitions the listener has."""
        self.barrier: int | None = None
        """Its cursor must read no further: the partitions are about to be changed."""
        self.token: int = row["token"]
        self.stands_at(row)
        self.fingerprint: str | None = row["fingerprint"]
        self.crashes: int = row["crashes"]
        """Consecutive holders that did not release it: they died, were suspended too long, or were
        cut off from the database."""
        self.term: dict[str, Any] = {
            "name": self.listener,
            "part": self.part,
            "token": self.token,
            "owner": row["owner"],
            "duration": duration,
        }
        self._progress: Progress | None = None
        self._trusted_until = began + TRUSTED * duration
        self._duration = duration
        self._clock = clock
        self.is_lost: bool = False
        self.is_blamed: bool = False
        """It ended, and its process was not awake meanwhile."""
        self.is_outdated: bool = False
        """The database lost what was written under it, or events that were read: a failover."""
        self.is_over = False
        """For a range: all of it is settled, so there is nothing to release."""

    @property
    def saved(self) -> Saved:
        """The content of its row, as far as its holder knows."""
        if self._progress is None:
            return Saved(self.position, "", self.revision)
        return self._progress.saved

    @property
    def may_have_crashed(self) -> bool:
        """Its holder stopped trusting it and was not awake: a handler may have blocked it."""
        return self.is_blamed and not self.is_outdated

    def stops_at(self, barrier: int | None) -> None:
        """What the survey of the listeners says of its barrier; None: there is none."""
        self.barrier = barrier

    def worked_by(self, progress: Progress) -> None:
        """A loop works under it from now on; *progress* is what it saves."""
        self._progress = progress

    def is_contradicted_by(self, row: Any, *, before: Saved) -> bool:
        """Whether the row differs from what its holder made of it. *before*: what was saved when
        the row was read.

        Each write raises the revision by one, one at a time, and is known here once it is answered;
        for one write the answer may not have come yet, or never. So the row shows a revision from
        *before* up to one more than what is saved now, whatever happens meanwhile, unless the
        database lost writes or someone else made some.
        """
        if not before.revision <= row["revision"] <= self.saved.revision + 1:
            return True
        return bool(row["revision"] == before.revision and row["position"] != before.position)

    def blamed(self) -> None:
        """An event may be to blame for its end."""
        self.is_blamed = True

    def outdated(self) -> None:
        """It must be claimed again, and work restarts from what the row says then."""
        self.is_outdated = True

    def stands_at(self, row: Any) -> None:
        """Read from the listener's row where a cursor has to start."""
        self.position: int = row["position"]
        self.gaps: str = row["gaps"]
        self.revision: int = row["revision"]
        self.retry_count: int = row["retry_count"]
        self.retry_position: int | None = row["retry_position"]
        self.retry_in: float | None = row["retry_in"]
        self.suspects: list[int] = [int(each) for each in json.loads(row["suspects"])]
        """Positions of events that a holder was attempting when it vanished."""

    def renewed(self, began: float | None = None) -> None:
        """A statement that renews it, started at *began*, was answered."""
        start = self._clock() if began is None else began
        self._trusted_until = max(self._trusted_until, start + TRUSTED * self._duration)

    @property
    def renewed_at(self) -> float:
        """When the last statement that renewed it was started."""
        return self._trusted_until - TRUSTED * self._duration

    @property
    def duration(self) -> float:
        return self._duration

    def has_ended(self) -> bool:
        """Not to be trusted anymore, though nobody else may hold it yet."""
        return self.is_lost or self._clock() >= self._trusted_until

    def lost(self) -> LeaseLost:
        self.is_lost = True
        return LeaseLost(
            f"the lease of listener {self.listener!r} (token {self.token}) is no longer ours: "
            "nothing of this attempt was recorded"
        )


class ClaimShield:
    """Waits for the answer to a statement that claims a lease, despite cancellation: for one
    statement, or one transaction, at a time.

    Invariant: this process knows of everything that the database may have leased to it. A statement
    that was sent and then cut off may still be committed; the lease would belong to nobody until it
    expires, and the next holder would count a crash.
    """

    def __init__(self) -> None:
        self._scope: CancelScope | None = None

    @contextmanager
    def open(self, *, shield: bool = True) -> Iterator[CancelScope]:
        """Start without *shield* and set it in the scope when the lease is about to be claimed."""
        with anyio.fail_after(None, shield=shield) as scope:
            self._scope = scope
            try:
                yield scope
            finally:
                self._scope = None

    def limit(self, seconds: float) -> None:
        """Give up if there is no answer within *seconds* from now. The lease may be left to
        expire."""
        if self._scope is not None:
            self._scope.deadline = min(self._scope.deadline, anyio.current_time() + seconds)


async def give_back(connections: Connections, release: Query, ranges: Sequence[Any]) -> None:
    """Release *ranges*: the snapshot they were claimed for may be of another history."""
    for row in ranges:
        term = {name: row[name] for name in ("name", "part", "token", "owner")}
        await best_effort(connections.rows(release, **term, crashed=False), RELEASE_SECONDS)
