"""What there is instead of a name that nobody knows: a typo must not look like "nothing to do"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_outbox.errors import ConfigError, ListenerNotFound
from sa_outbox.policy.checks import did_you_mean, known_instead
from sa_outbox.sql.log.listener_partitions import listener_names

from .audit import ACTIONS
from .choices import audit_choices
from .dead_letters import MAX_LISTED, DeadLetterFilter, count_dead_letters, list_dead_letters
from .events import list_events
from .statement_runner import OperatorRunner

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables

    from .audit import AuditFilter


def unknown_listener(connection: Connection, tables: Tables, name: str) -> ListenerNotFound:
    """The error for a listener that the database does not know."""
    rows = OperatorRunner(connection, tables).rows(listener_names(tables))
    known = known_instead(name, [row["name"] for row in rows])
    return ListenerNotFound(f"the database knows no listener {name!r}{known}")


def check_listener(connection: Connection, tables: Tables, name: str) -> None:
    """Raise :class:`ListenerNotFound` unless it is registered, or has left dead letters."""
    rows = OperatorRunner(connection, tables).rows(listener_names(tables))
    if name in {row["name"] for row in rows}:
        return
    left = DeadLetterFilter(listener=name, resolution="any")
    if not count_dead_letters(connection, tables, left, most=1):
        raise unknown_listener(connection, tables, name)


def near_event_types(connection: Connection, tables: Tables, wanted: Iterable[str]) -> str:
    """``; did you mean 'order.placed'?`` for the first of *wanted* that none of the latest events
    has, while some have a similar type. Else nothing."""
    page = list_events(connection, tables, limit=MAX_LISTED)
    return _near(wanted, {each.event_type for each in page.events})


def near_dead_types(connection: Connection, tables: Tables, wanted: Iterable[str]) -> str:
    """``near_event_types`` among the latest dead letters."""
    page = list_dead_letters(connection, tables, limit=MAX_LISTED)
    return _near(wanted, {each.event_type for each in page.letters})


def check_audit_filter(connection: Connection, tables: Tables, wanted: AuditFilter) -> None:
    """Raise :class:`ListenerNotFound` for a listener that is neither registered nor in recent
    records or dead letters, and :class:`ConfigError` for an action that is neither in ``ACTIONS``
    nor in recent records."""
    recent = audit_choices(connection, tables)
    if wanted.listener is not None and wanted.listener not in recent.listeners:
        check_listener(connection, tables, wanted.listener)
    actions = {*ACTIONS, *recent.actions}
    if wanted.action is not None and wanted.action not in actions:
        instead = known_instead(wanted.action, actions)
        raise ConfigError(f"the audit has no action {wanted.action!r}{instead}")


def _near(wanted: Iterable[str], known: set[str]) -> str:
    unknown = (each for each in wanted if each not in known)
    return next(filter(None, (did_you_mean(each, known) for each in unknown)), "")
