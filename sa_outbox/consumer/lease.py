"""The right to work for a listener: a term that ends by itself, known by its token."""

from __future__ import annotations

from time import monotonic
from typing import Any

from sa_outbox.errors import LeaseLost

from .gaps import Gaps

TRUSTED = 0.8
"""Part of its duration for which the holder trusts a lease: it stops before the database would
give the listener to another one, whatever the two clocks say."""


class Lease:
    """One term of one listener.

    Invariant: what is written under it is written in a transaction whose last statement has found
    the listener's row with this token; whoever claims the listener raises the token first, by an
    UPDATE of that row. So the two are in one order, and after the claim nothing of an older term
    can be written: not by a process that slept, not by a packet that was late.
    """

    def __init__(self, row: Any, *, duration: float, began: float) -> None:
        self.listener: str = row["name"]
        self.part: int = row["part"]
        """Which partition of the listener, or which range of a queue."""
        self.partition: int = row.get("partition", self.part)
        self.count = 1
        """How many partitions the listener has."""
        self.barrier: int | None = None
        """Its cursor is to read no further: the partitions are about to be changed."""
        self.token: int = row["token"]
        self.stands_at(row)
        self.fingerprint: str | None = row["fingerprint"]
        self.crashes: int = row["crashes"]
        """Holders in a row that did not release it: they died, or slept for too long."""
        self.term: dict[str, Any] = {
            "name": self.listener,
            "part": self.part,
            "token": self.token,
            "duration": duration,
        }
        self._trusted_until = began + TRUSTED * duration
        self._duration = duration
        self.is_lost = False
        self.is_over = False
        """Of a range: all of it is settled, so there is nothing to give back."""

    @property
    def key(self) -> tuple[str, int]:
        return self.listener, self.part

    def stands_at(self, row: Any) -> None:
        """Take over from the listener's row where a cursor has to begin."""
        self.position: int = row["position"]
        self.gaps = Gaps.parse(row["gaps"])
        self.revision: int = row["revision"]
        self.retry_count: int = row["retry_count"]
        self.retry_position: int | None = row["retry_position"]
        self.retry_in: float | None = row["retry_in"]

    def renewed(self, began: float | None = None) -> None:
        """A statement that renews it, begun at *began*, was answered."""
        start = monotonic() if began is None else began
        self._trusted_until = max(self._trusted_until, start + TRUSTED * self._duration)

    def has_ended(self) -> bool:
        """Not to be trusted any more, though nobody else may hold it yet."""
        return self.is_lost or monotonic() >= self._trusted_until

    def lost(self) -> LeaseLost:
        self.is_lost = True
        return LeaseLost(
            f"the lease of listener {self.listener!r} (token {self.token}) is not ours any more: "
            "nothing of this attempt was recorded"
        )
