"""Wait for the answer to a statement that claims a lease, despite cancellation.

Invariant: this process knows of everything that the database may have leased to it. A statement
that was sent and then cut off may still be committed; the lease would belong to nobody until it
expires, and the next holder would count a crash.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
from anyio import CancelScope

from .connections import best_effort

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .connections import Connections, Query

RELEASE_SECONDS = 2.0
"""Seconds to release a range; after that its lease expires by itself."""


class ClaimShield:
    """For one statement, or one transaction, at a time."""

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
