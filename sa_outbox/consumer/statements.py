"""The statements of one outbox, rendered once for all its listeners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_outbox.sql import cursors, deliveries, horizon, leases, notify, reading

from .connections import Query

if TYPE_CHECKING:
    from sa_outbox.tables import Tables

RELEASED = "released"
"""Message of the NOTIFY that tells other consumers of a lease that is free."""


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
        self.hold = Query(cursors.hold(tables))
        self.mark = Query(cursors.mark(tables))
        self.forget_crashes = Query(cursors.forget_crashes(tables))
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
        self.park = Query(deliveries.park(tables))
        self.bury = Query(deliveries.bury(tables))
        self.settle = Query(deliveries.settle(tables))
        self.promote = Query(deliveries.promote(tables))
        self.occupied = Query(deliveries.occupied(tables))
        self.next_due = Query(deliveries.next_due(tables))
        self.notify_released = Query(notify.notify(channel, RELEASED))
        self.ping = Query(notify.ping(channel))
        self.listening = Query(notify.listening())
