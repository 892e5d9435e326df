"""What an operator does to deliveries that wait: retry them now, or cancel them.

The row decides, under its lock: an operation on a delivery that is just being attempted, or is
done, changes nothing and says so. Each answers with an outcome per delivery, so one that can't be
changed does not stop the others.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from sa_outbox.errors import ListenerNotFound, NotSkipped
from sa_outbox.policy.order import QUEUES
from sa_outbox.sql.people import deliveries as sql
from sa_outbox.sql.people import listener_changes

from .deliveries import DeliveryId, list_deliveries
from .listeners import skip_event
from .operator import wake
from .statement_runner import OperatorRunner

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables
    from sa_outbox.declare.declaration import Listeners

    from .deliveries import DeliveryFilter
    from .operator import Operator

MAX_AT_ONCE: Final = 500
"""Deliveries that one transaction changes."""
Outcome: TypeAlias = Literal[
    "retried", "cancelled", "skipped", "requested", "running", "due", "behind", "done", "dead"
]
OUTCOMES: Final[Mapping[Outcome, str]] = {
    "retried": "due now",
    "cancelled": "cancelled",
    "skipped": "skipped, and those behind it go on",
    "requested": "running or about to: its process was asked to stop",
    "running": "unchanged: claimed by a process, which is attempting it or about to",
    "due": "unchanged: already due, so a process may just be attempting it",
    "behind": "unchanged: an earlier event of its key waits, and comes first",
    "done": "unchanged: it no longer waits",
    "dead": "unchanged: it is a dead letter",
}
"""What each outcome means, for people."""
CHANGED: Final = ("retried", "cancelled", "skipped", "requested")
"""Outcomes with which something was changed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Retried:
    """One batch of retries."""

    outcomes: Mapping[DeliveryId, Outcome]
    next_after: DeliveryId | None
    """Pass this as ``after=`` for the next batch; None: there is none."""


def retry_deliveries(
    connection: Connection,
    tables: Tables,
    ids: Iterable[DeliveryId],
    operator: Operator,
    *,
    channel: str | None = None,
) -> dict[DeliveryId, Outcome]:
    """Make these due now, and wake the consumers. Attempts are counted on; a scheduled one comes
    before its time; the order of a key is kept.

    A listener with order="total" that waits for one of these starts with it again: whoever holds it
    loses its lease.
    """
    wanted = sorted(set(ids))
    found: dict[DeliveryId, Outcome] = dict.fromkeys(wanted, "done")
    given = {
        "listeners": [each.listener for each in wanted],
        "positions": [each.position for each in wanted],
        "who": operator.who,
        "why": operator.why,
    }
    runner = OperatorRunner(connection, tables)
    # Listeners first, as everybody does who locks rows of both.
    for statement in (sql.retry_held(tables), sql.retry(tables)):
        for row in runner.rows(statement, **given):
            found[DeliveryId(row["listener"], row["position"])] = row["outcome"]
    if "retried" in found.values():
        wake(connection, tables, channel)
    return found


def retry_matching(
    connection: Connection,
    tables: Tables,
    wanted: DeliveryFilter,
    operator: Operator,
    *,
    after: DeliveryId | None = None,
    channel: str | None = None,
) -> Retried:
    """``retry_deliveries`` for those that match and have failed before: never for one that waits
    for its ``run_at``. Up to 500; call it again with ``next_after``, in a transaction of its
    own."""
    failed = replace(wanted, failed=True)
    page = list_deliveries(connection, tables, failed, after=after, limit=MAX_AT_ONCE)
    ids = [each.id for each in page.deliveries]
    outcomes = retry_deliveries(connection, tables, ids, operator, channel=channel)
    return Retried(outcomes=outcomes, next_after=page.next_after)


def cancel_deliveries(
    connection: Connection,
    tables: Tables,
    ids: Iterable[DeliveryId],
    operator: Operator,
    *,
    listeners: Listeners | None = None,
    channel: str | None = None,
) -> dict[DeliveryId, Outcome]:
    """Have these never attempted again, each by its listener alone.

    One of a queue and a scheduled one is cancelled; another of a listener that keeps an order is
    skipped, also one for which order="total" waits, and the events behind it go on. *listeners* are
    those that the program declares, if it is known: they tell which are queues; of others the
    database's tables do.
    """
    wanted = sorted(set(ids))
    runner = OperatorRunner(connection, tables)
    queues = _queues(runner, tables, wanted, listeners)
    for name in sorted({each.listener for each in wanted} - queues):
        # Then nobody settles one of its events: what is read now holds until it is changed.
        runner.rows(listener_changes.lock(tables), name=name)
    found = {
        DeliveryId(row["listener"], row["position"]): row["state"]
        for row in runner.rows(
            sql.states(tables),
            listeners=[each.listener for each in wanted],
            positions=[each.position for each in wanted],
        )
    }
    cancelling = _Cancelling(connection, tables, operator, channel)

    def change(each: DeliveryId) -> Outcome:
        if each not in found:
            return cancelling.over(each)
        if each.listener in queues or found[each] in ("scheduled", "cancelled"):
            is_queue, has_row = each.listener in queues, found[each] is not None
            return cancelling.cancel(each, is_queue=is_queue, has_row=has_row)
        return cancelling.skip(each)

    return {each: change(each) for each in wanted}


def _queues(
    runner: OperatorRunner, tables: Tables, wanted: list[DeliveryId], listeners: Listeners | None
) -> set[str]:
    names = {each.listener for each in wanted}
    declared = {name for name in names if listeners is not None and name in listeners}
    found = {name for name in declared if listeners and listeners[name].order_mode.is_queue}
    rows = runner.rows(sql.of_queues(tables), listeners=sorted(names - declared), orders=QUEUES)
    return found | {row["name"] for row in rows}


class _Cancelling:
    """One transaction's cancellations."""

    def __init__(
        self, connection: Connection, tables: Tables, operator: Operator, channel: str | None
    ) -> None:
        from sa_outbox.client.cancellation import Cancelling  # noqa: PLC0415 - a list needs none
        from sa_outbox.declare.declaration import Listeners  # noqa: PLC0415
        from sa_outbox.settings import Settings  # noqa: PLC0415

        self._connection, self._tables = connection, tables
        self._operator, self._channel = operator, channel
        self._runner = OperatorRunner(connection, tables)
        self._client = Cancelling(tables, Settings(names=tables.names), Listeners())

    def cancel(self, one: DeliveryId, *, is_queue: bool, has_row: bool) -> Outcome:
        answer = self._client.cancel_delivery(
            self._runner,
            one.listener,
            one.position,
            self._operator.why,
            {"actor_type": "operator", "actor_id": self._operator.who},
            is_queue=is_queue,
            has_row=has_row,
        )
        if answer == "requested":
            self._record_request(one)
        if answer == "unknown" or answer == "ordered":  # noqa: PLR1714 - narrows the type
            return "done"
        return answer

    def skip(self, one: DeliveryId) -> Outcome:
        try:
            skip_event(
                self._connection,
                self._tables,
                one.listener,
                self._operator,
                position=one.position,
                channel=self._channel,
            )
        except (NotSkipped, ListenerNotFound):
            return self.over(one)
        return "skipped"

    def over(self, one: DeliveryId) -> Outcome:
        """Of one that its listener will not attempt."""
        return "dead" if self._client.is_dead(self._runner, one.listener, one.position) else "done"

    def _record_request(self, one: DeliveryId) -> None:
        self._runner.rows(
            listener_changes.record(self._tables),
            name=one.listener,
            action="cancel requested",
            who=self._operator.who,
            detail=json.dumps({"position": one.position, "why": self._operator.why}),
            event_id=None,
            event_type=None,
        )
