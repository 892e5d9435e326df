"""Recurring events: which there are, when they are due, and adding an extra event now.

The database knows a cron's name and its last tick. The expression, the time zone and the event are
in the program that declares it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sa_outbox.declare.cron import ON_TIME
from sa_outbox.errors import ConfigError
from sa_outbox.policy.checks import known_instead
from sa_outbox.sql.log.events import insert_events
from sa_outbox.sql.people import crons as sql
from sa_outbox.sql.people import listener_changes
from sa_outbox.sql.people.audit import record_added
from sa_outbox.sql.server.notify import notify
from sa_outbox.sql.server.transactions import abort

from .statement_runner import OperatorRunner

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables
    from sa_outbox.declare.recurring import Crons, Recurring

    from .operator import Operator

MAX_LISTED: Final = 1000
NEXT_TICKS: Final = 3
_READS: Final = {"crons": "SELECT"}
_RUNS: Final = {"": "INSERT", "crons": "SELECT, UPDATE (updated_at)", "audit": "INSERT"}


@dataclass(frozen=True, kw_only=True, slots=True)
class CronOverview:
    """One cron: what the asking program declares, and what the database knows."""

    name: str
    expression: str | None
    """None: the asking program does not declare it, or no program was named."""
    time_zone: str | None
    event_type: str | None
    missed: str | None
    last_tick: datetime | None
    """The last tick that got its event, or that was decided to get none. None: no consumer has
    registered it."""
    next_ticks: tuple[datetime, ...]
    """The next three, if its expression is known."""
    is_late: bool
    """Its next tick passed more than a minute ago: no consumer adds its events."""
    changed_at: datetime | None
    """When its row was last written: pass this as ``seen=`` to run it once."""


def list_crons(connection: Connection, tables: Tables, declared: Crons) -> tuple[CronOverview, ...]:
    """By name: those of the database, and those that the program declares."""
    runner = OperatorRunner(connection, tables, _READS)
    now = runner.rows(sql.now())[0]["now"]
    rows = {row["name"]: row for row in runner.rows(sql.registered(tables), limit=MAX_LISTED)}
    ours = {each.name: each for each in declared}
    return tuple(
        _overview(name, rows.get(name), ours.get(name), now) for name in sorted({*rows, *ours})
    )


def run_cron(
    connection: Connection,
    tables: Tables,
    declared: Crons,
    name: str,
    operator: Operator,
    *,
    seen: datetime | None = None,
    records_added: bool = False,
    channel: str | None = None,
) -> UUID | None:
    """Add the event of the cron *name* now, once more. The schedule stays as it is. Its header
    ``tick`` is the present time, and its actor the operator. *records_added*: the outbox has
    ``audit="all"``.

    Returns the event's id; None if its row has changed since *seen*: it has ticked, or somebody
    else was faster. Raises :class:`ConfigError` for a cron that the program does not declare, or
    that no consumer has registered; :class:`NotWritten` if a rule or trigger swallows the event.
    """
    recurring = _declared(declared, name)
    runner = OperatorRunner(connection, tables, _RUNS)
    rows = runner.rows(sql.touch(tables), name=name, seen=seen)
    if not rows:
        if runner.rows(sql.is_registered(tables), name=name):
            return None
        raise ConfigError(f"no consumer has registered the cron {name!r} yet: start one")
    event_id, row = recurring.once_more(rows[0]["now"], operator.who)
    runner.add_events(insert_events(tables), [row], abort=abort())
    if records_added:
        runner.rows(record_added(tables), document=f"[{row}]")
    runner.rows(
        listener_changes.record(tables),
        name=None,
        action="cron run now",
        who=operator.who,
        detail=json.dumps({"cron": name, "why": operator.why}),
        event_id=event_id,
        event_type=recurring.event_type,
    )
    runner.rows(notify(tables.names.notify_channel if channel is None else channel))
    return event_id


def _declared(crons: Crons, name: str) -> Recurring:
    known = {each.name: each for each in crons}
    if name not in known:
        raise ConfigError(
            f"the program declares no cron {name!r}{known_instead(name, list(known))}"
        )
    return known[name]


def _overview(
    name: str, row: Mapping[str, datetime] | None, declared: Recurring | None, now: datetime
) -> CronOverview:
    last_tick = None if row is None else row["last_tick"]
    following = () if declared is None else _next_ticks(declared, max(now, last_tick or now))
    return CronOverview(
        name=name,
        expression=None if declared is None else declared.cron.expression,
        time_zone=None if declared is None else declared.cron.time_zone,
        event_type=None if declared is None else declared.event_type,
        missed=None if declared is None else declared.missed,
        last_tick=last_tick,
        next_ticks=following,
        is_late=declared is not None and last_tick is not None and _late(declared, last_tick, now),
        changed_at=None if row is None else row["updated_at"],
    )


def _next_ticks(declared: Recurring, after: datetime) -> tuple[datetime, ...]:
    found: list[datetime] = []
    while len(found) < NEXT_TICKS:
        upcoming = declared.cron.next_after(found[-1] if found else after)
        if upcoming is None:
            break
        found.append(upcoming)
    return tuple(found)


def _late(declared: Recurring, last_tick: datetime, now: datetime) -> bool:
    """With missed="skip" nothing is written for a tick that gets no event, so nobody can tell."""
    expected = declared.cron.next_after(last_tick)
    return declared.missed != "skip" and expected is not None and expected + ON_TIME < now
