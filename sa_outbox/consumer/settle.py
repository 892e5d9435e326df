"""Writing what became of events: one transaction for the cursor, parked deliveries, dead letters.

``plan`` says which statements, and decides nothing; ``Settler`` runs them under the lease. The
statement that moves the cursor comes last and holds the lease's token and the old position: when
it finds no row, the lease is lost and the whole transaction is rolled back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio

from sa_outbox.errors import LeaseLost

from .connections import Query, is_away, is_passing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from .connections import Connections
    from .item import Item
    from .lease import Lease
    from .progress import Saved
    from .statements import Settling

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
_PARKED = {
    "park": "parked",
    "behind": "behind",
    "schedule": "scheduled",
    "cancel": "cancelled",
    "withdraw": "cancelled",
}
_OF_WHAT_IS_LEFT = ("position", "gaps")


@dataclass(frozen=True, slots=True)
class Write:
    """A statement with its values. *fenced*: it must find the row of the lease."""

    query: Query
    values: dict[str, Any]
    fenced: bool = False


def plan(
    statements: Settling,
    lease: Lease,
    items: Sequence[Item],
    *,
    old: Saved,
    new: Saved,
    holding: bool = False,
) -> list[Write]:
    """The statements that settle *items* and move the cursor from *old* to *new*, in order.

    *holding*: another event waits for its next attempt, and its errors are in the listener's row.
    """
    # Of these more is to be written than the cursor.
    special = [
        item for item in items if item.fate != "done" or item.state or item.result is not None
    ]
    writes = _of_their_own(statements, lease, special) if special else []
    moved = {
        **lease.term,
        "old": old.position,
        "revision": old.revision,
        "position": new.position,
        "gaps": new.gaps,
    }
    forget = bool(items) and not holding
    writes.append(_move(statements, special, moved, forget=forget))
    return writes


def _of_their_own(statements: Settling, lease: Lease, items: Sequence[Item]) -> list[Write]:
    """What is written of these but for the cursor."""
    listener = lease.listener
    writes: list[Write] = []
    dead = [item for item in items if item.fate == "dead"]
    if dead:
        document = json.dumps([_buried(item) for item in dead])
        writes.append(Write(statements.bury, {"listener": listener, "document": document}))
    parked = [item for item in items if item.fate in _PARKED]
    if parked:
        document = json.dumps([_parked(item) for item in parked])
        whose = {"listener": listener, "part": lease.partition}
        writes.append(Write(statements.park, {**whose, "document": document}))
    gone = [item.position for item in items if item.state and item.fate in ("done", "dead")]
    if gone:
        writes.append(Write(statements.settle, {"listener": listener, "positions": gone}))
    results = [_left(item) for item in items if item.fate == "done" and item.result is not None]
    if results:
        document = json.dumps(results)
        writes.append(Write(statements.leave_results, {"listener": listener, "document": document}))
    keys = sorted(
        {
            item.key
            for item in items
            if item.key is not None and (item.state or item.fate in _PARKED)
        }
    )
    if keys and statements.promote is not None:
        writes.append(Write(statements.promote, {"listener": listener, "keys": keys}))
    failures = [item.failure for item in items if item.failure is not None and item.fate != "hold"]
    if failures:
        told = {"code": failures[-1].code, "message": failures[-1].message}
        writes.append(Write(statements.remember_error, {**_named(lease), **told}))
    return writes


def _named(lease: Lease) -> dict[str, Any]:
    return {"name": lease.listener, "part": lease.part, "token": lease.token}


def _move(
    statements: Settling, items: Sequence[Item], values: dict[str, Any], *, forget: bool
) -> Write:
    for item in items:
        if item.fate == "hold" and item.failure is not None and statements.hold is not None:
            failure = item.failure
            values |= {
                "held": item.position,
                "retry_count": item.attempts,
                "delay": item.delay,
                "failure": json.dumps(failure.as_json()),
                "code": failure.code,
                "message": failure.message,
            }
            return Write(statements.hold, values, fenced=True)
    if statements.finish is not None and values["gaps"] == "[]":
        kept = {key: each for key, each in values.items() if key not in _OF_WHAT_IS_LEFT}
        return Write(statements.finish, kept, fenced=True)
    return Write(statements.advance if forget else statements.save, values, fenced=True)


def _parked(item: Item) -> dict[str, Any]:
    waits = item.fate in ("park", "schedule")
    return {
        "position": item.position,
        "state": _PARKED[item.fate],
        "delay": item.delay if waits else None,
        "attempts": item.attempts,
        "failure": None if item.failure is None else item.failure.as_json(),
    }


def _left(item: Item) -> dict[str, Any]:
    assert item.result is not None  # noqa: S101 - for the type checker
    reference, lifetime = item.result
    return {"event_id": str(item.event_id), "result_ref": reference, "lifetime": lifetime}


def _buried(item: Item) -> dict[str, Any]:
    return {
        "position": item.position,
        "reason": item.reason,
        "attempts": item.attempts,
        "crashes": item.crashes,
        "failure": None if item.failure is None else item.failure.as_json(),
    }


class Settler:
    """Runs plans for one lease on the consumer's own connections."""

    def __init__(self, connections: Connections, statements: Settling, lease: Lease) -> None:
        self._connections = connections
        self._statements = statements
        self._lease = lease

    async def write(self, writes: list[Write], *, new: Saved) -> None:
        """Run *writes* in one transaction, for as long as it takes and the lease is ours.

        Shielded: the handlers' effects exist already; cancelled here, they would come twice.
        Raises :class:`LeaseLost`.
        """
        with anyio.CancelScope(shield=True):
            pause = FIRST_PAUSE
            while True:
                began = monotonic()
                try:
                    await self._run(writes)
                except Exception as error:
                    # A deadlock, with one who cancels several: all of it is to be done again.
                    if not is_passing(error):
                        if not is_away(error):
                            raise
                        self._connections.drop_idle()
                    if self._lease.has_ended():
                        raise _away_too_long() from error
                    await anyio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE)
                    # The answer to the COMMIT may be what was lost.
                    if await self.became(new):
                        break
                else:
                    break
            self._lease.renewed(began)

    async def became(self, new: Saved) -> bool:
        """Whether the listener's row holds *new*; waits for a transaction that is writing it."""
        pause = FIRST_PAUSE
        while True:
            try:
                row = await self.stand()
            except Exception as error:
                if not is_away(error):
                    raise
                if self._lease.has_ended():
                    raise _away_too_long() from error
                self._connections.drop_idle()
                await anyio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                return bool(row["revision"] == new.revision)

    async def stand(self) -> Any:
        """The listener's row: position, gaps, revision, retries. Raises :class:`LeaseLost`."""
        term = self._lease.term
        rows = await self._connections.rows(
            self._statements.stand, name=term["name"], part=term["part"], token=term["token"]
        )
        if not rows:
            raise self._lease.lost()
        return rows[0]

    async def _run(self, writes: list[Write]) -> None:
        async with self._connections.connection() as connection:
            if len(writes) == 1:  # by far the most: one statement, no transaction around it
                await self._run_each(writes, connection.rows)
                return
            async with connection.transaction():
                await self._run_each(writes, connection.rows)

    async def _run_each(
        self, writes: list[Write], run: Callable[..., Awaitable[list[Any]]]
    ) -> None:
        for write in writes:
            rows = await run(write.query, **write.values)
            if write.fenced and not rows:
                raise self._lease.lost()


def _away_too_long() -> LeaseLost:
    return LeaseLost("the database was away for longer than the lease: another may hold it now")
