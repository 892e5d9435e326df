"""The statements of one outbox, rendered once for all its listeners."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Protocol

from sa_outbox.sql import (
    audit,
    cancelling,
    crons,
    cursors,
    deliveries,
    events,
    horizon,
    leases,
    notify,
    queues,
    ranges,
    reading,
    transactions,
)

from .connections import Query

if TYPE_CHECKING:
    from sa_outbox.tables import Tables

RELEASED = "released"
"""Message of the NOTIFY that tells other consumers of a lease that is free."""


class Settling(Protocol):
    """What is run under a lease: on a listener's cursor, or on a range of a queue."""

    bound: Query
    record: Query
    bury: Query
    park: Query
    settle: Query
    leave_results: Query
    promote: Query | None
    remember_error: Query
    hold: Query | None
    advance: Query
    save: Query
    finish: Query | None
    """Instead of ``save``, when nothing is left; None: there is always more to come."""
    mark: Query
    forget_crashes: Query | None
    stand: Query


@cache
def statements(tables: Tables, channel: str) -> Statements:
    """Those of one outbox: rendering them is a large part of a consumer's start, and tests, and
    programs that drain, start many."""
    return Statements(tables, channel)


class Statements:
    def __init__(self, tables: Tables, channel: str) -> None:
        self.ceiling = Query(horizon.ceiling(tables))
        self.holders = Query(horizon.holders(tables))
        self.look = Query(horizon.look(tables))
        self.holders_named = Query(horizon.holders_named(tables))
        self.holes = Query(horizon.holes(tables))
        self.first_since = Query(horizon.first_since(tables))
        self.register = Query(cursors.register(tables))
        self.registered = Query(cursors.registered(tables))
        self.declare = Query(cursors.declare(tables))
        self.advance = Query(cursors.advance(tables))
        self.save = Query(cursors.save(tables))
        self.hold: Query | None = Query(cursors.hold(tables))
        self.finish: Query | None = None
        self.mark = Query(cursors.mark(tables))
        self.forget_crashes: Query | None = Query(cursors.forget_crashes(tables))
        self.stand = Query(cursors.stand(tables))
        self.remember_error = Query(cursors.remember_error(tables))
        self.behind = Query(cursors.behind(tables))
        self.claim = Query(leases.claim(tables))
        self.renew = Query(leases.renew(tables))
        self.release = Query(leases.release(tables))
        self.survey = Query(leases.survey(tables))
        self.announce = Query(leases.announce(tables))
        self.withdraw = Query(leases.withdraw(tables))
        self.read_due = Query(reading.read_due(tables))
        self.bound = Query(transactions.bound())
        self.record = Query(audit.record(tables))
        self.park = Query(deliveries.park(tables))
        self.bury = Query(deliveries.bury(tables))
        self.settle = Query(deliveries.settle(tables))
        self.leave_results = Query(deliveries.leave_results(tables))
        self.promote: Query | None = Query(deliveries.promote(tables))
        self.occupied = Query(deliveries.occupied(tables))
        self.next_due = Query(deliveries.next_due(tables))
        self.insert_events = Query(events.insert_events(tables))
        self.claim_keys = Query(events.claim_idempotency_keys(tables))
        self.record_added = Query(audit.record_added(tables))
        self.crons_standing = Query(crons.standing(tables))
        self.crons_register = Query(crons.register(tables))
        self.crons_claim = Query(crons.claim(tables))
        self.crons_advance = Query(crons.advance(tables))
        self.notify = Query(notify.notify(channel))
        self.notify_released = Query(notify.notify(channel, RELEASED))
        self.ping = Query(notify.ping(channel))
        self.listening = Query(notify.listening())
        self.ranges = RangeStatements(tables, self)


class RangeStatements:
    """The same for the ranges of queues, and how they are taken."""

    def __init__(self, tables: Tables, shared: Statements) -> None:
        self.bury, self.park, self.settle = shared.bury, shared.park, shared.settle
        self.bound, self.record = shared.bound, shared.record
        self.leave_results = shared.leave_results
        self.promote: Query | None = None
        self.hold: Query | None = None
        self.forget_crashes: Query | None = None
        self.remember_error = Query(ranges.remember_error(tables))
        self.advance = self.save = Query(ranges.advance(tables))
        self.finish: Query | None = Query(ranges.finish(tables))
        self.mark = Query(ranges.mark(tables))
        self.stand = Query(ranges.stand(tables))
        self.state = Query(queues.state(tables))
        self.busy = Query(queues.busy(tables))
        self.claim = Query(ranges.claim(tables))
        self.renew = Query(ranges.renew(tables))
        self.release = Query(ranges.release(tables))
        self.lock = Query(queues.lock(tables))
        self.read_chosen = Query(queues.read_chosen(tables))
        self.take = Query(queues.take(tables))
        self.pass_over = Query(queues.pass_over(tables))
        self.take_due = Query(queues.take_due(tables))
        self.requested = Query(cancelling.requested(tables))
        self.forget_requests = Query(cancelling.forget(tables))
