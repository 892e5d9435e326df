"""The statements of one outbox, rendered once for all its listeners."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Protocol

from sa_outbox.sql.listener import crons, cursors, deliveries, leases, renewal, suspects
from sa_outbox.sql.log import events, horizon, reads
from sa_outbox.sql.people import audit
from sa_outbox.sql.queue import cancellation, claims, ranges
from sa_outbox.sql.server import notify, transactions

from .connections import Query

if TYPE_CHECKING:
    from sa_outbox.database.tables import Tables


class Settling(Protocol):
    """Statements that run under a lease: on a listener's cursor, or on a queue's range."""

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
    """Used instead of ``save`` when nothing is left; None: there is always more to come."""
    suspects: SuspectStatements
    stand: Query


@cache
def statements(tables: Tables, channel: str) -> Statements:
    """The statements of one outbox, cached: rendering them is a large part of a consumer's startup,
    and tests, and programs that drain, start many."""
    return Statements(tables, channel)


class Statements:
    def __init__(self, tables: Tables, channel: str) -> None:
        self.ceiling: Query = Query(horizon.ceiling(tables))
        self.holders: Query = Query(horizon.holders(tables))
        self.read_horizon: Query = Query(horizon.read(tables))
        self.undrawn: Query = Query(horizon.undrawn(tables))
        self.drawn: Query = Query(horizon.last_drawn(tables))
        self.holders_named: Query = Query(horizon.holders_named(tables))
        self.holes: Query = Query(horizon.holes(tables))
        self.first_since: Query = Query(horizon.first_since(tables))
        self.register: Query = Query(cursors.register(tables))
        self.registered: Query = Query(cursors.registered(tables))
        self.describe: Query = Query(cursors.describe(tables))
        self.declare: Query = Query(cursors.declare(tables))
        self.advance: Query = Query(cursors.advance(tables))
        self.save: Query = Query(cursors.save(tables))
        self.hold: Query | None = Query(cursors.hold(tables))
        self.finish: Query | None = None
        self.suspects: SuspectStatements = SuspectStatements(tables)
        self.stand: Query = Query(cursors.stand(tables))
        self.remember_error: Query = Query(cursors.remember_error(tables))
        self.behind: Query = Query(cursors.behind(tables))
        self.claim: Query = Query(leases.claim(tables))
        self.renew: Query = Query(renewal.renew(tables))
        self.release: Query = Query(leases.release(tables))
        self.release_all: Query = Query(leases.release_all(tables.listeners))
        self.survey: Query = Query(leases.survey(tables))
        self.announce: Query = Query(leases.announce(tables))
        self.withdraw: Query = Query(leases.withdraw(tables))
        self.read_due: Query = Query(reads.read_due(tables))
        self.read_again: Query = Query(reads.read_again(tables))
        self.bound: Query = Query(transactions.bound())
        self.record: Query = Query(audit.record(tables))
        self.park: Query = Query(deliveries.park(tables))
        self.bury: Query = Query(deliveries.bury(tables))
        self.settle: Query = Query(deliveries.settle(tables))
        self.leave_results: Query = Query(deliveries.leave_results(tables))
        self.promote: Query | None = Query(deliveries.promote(tables))
        self.occupied: Query = Query(deliveries.occupied(tables))
        self.next_due: Query = Query(deliveries.next_due(tables))
        self.insert_events: Query = Query(events.insert_events(tables))
        self.claim_keys: Query = Query(events.claim_idempotency_keys(tables))
        self.record_added: Query = Query(audit.record_added(tables))
        self.crons_standing: Query = Query(crons.standing(tables))
        self.crons_register: Query = Query(crons.register(tables))
        self.crons_claim: Query = Query(crons.claim(tables))
        self.crons_advance: Query = Query(crons.advance(tables))
        self.notify: Query = Query(notify.notify(channel))
        self.notify_released: Query = Query(notify.notify(channel, notify.RELEASED))
        self.ping: Query = Query(notify.ping(channel))
        self.listening: Query = Query(notify.listening())
        self.ranges: RangeStatements = RangeStatements(tables, self)


class RangeStatements:
    """Statements that run under the lease of a queue's range, and those that claim ranges."""

    def __init__(self, tables: Tables, shared: Statements) -> None:
        self.bury: Query = shared.bury
        self.park: Query = shared.park
        self.settle: Query = shared.settle
        self.bound: Query = shared.bound
        self.record: Query = shared.record
        self.leave_results: Query = shared.leave_results
        self.promote: Query | None = None
        self.hold: Query | None = None
        self.remember_error: Query = Query(ranges.remember_error(tables))
        self.advance: Query = Query(ranges.advance(tables))
        self.save: Query = self.advance
        self.finish: Query | None = Query(ranges.finish(tables))
        self.suspects: SuspectStatements = SuspectStatements(tables, ranges=True)
        self.stand: Query = Query(ranges.stand(tables))
        self.state: Query = Query(claims.state(tables))
        self.busy: Query = Query(claims.busy(tables))
        self.claim: Query = Query(ranges.claim(tables))
        self.renew: Query = Query(renewal.renew(tables, ranges=True))
        self.release: Query = Query(ranges.release(tables))
        self.release_all: Query = Query(leases.release_all(tables.ranges))
        self.lock: Query = Query(claims.lock(tables))
        self.read_chosen: Query = Query(claims.read_chosen(tables))
        self.take: Query = Query(claims.take(tables))
        self.pass_over: Query = Query(claims.pass_over(tables))
        self.take_due: Query = Query(claims.take_due(tables))
        self.requested: Query = Query(cancellation.requested(tables))
        self.forget_requests: Query = Query(cancellation.forget(tables))


class SuspectStatements:
    """For a listener's row, or a range's."""

    def __init__(self, tables: Tables, *, ranges: bool = False) -> None:
        self.note: Query = Query(suspects.note(tables, ranges=ranges))
        self.mark: Query = Query(suspects.mark(tables, ranges=ranges))
        self.absolve: Query = Query(suspects.absolve(tables, ranges=ranges))
        self.lived: Query = Query(suspects.lived(tables, ranges=ranges))
        self.forget: Query | None = None if ranges else Query(suspects.forget(tables))
        """None: they go with the row."""
        self.record_lost: Query = Query(audit.record_lost(tables, ranges=ranges))
        self.clock: Query = Query(suspects.clock())
        self.read_suspects: Query = Query(reads.read_due(tables, "suspects"))
        self.read_earlier: Query = Query(reads.read_due(tables, "earlier"))
