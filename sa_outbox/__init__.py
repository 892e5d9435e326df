"""The transactional outbox for SQLAlchemy on PostgreSQL.

A transaction that commits has its events; one that rolls back has none. The path of an event:

====================================================================  ===========================
``session.add_event(...)`` checks and remembers the event             ``producer/session.py``,
                                                                      ``producer/pending.py``
``entity.record_event(...)`` keeps it with the object until then      ``producer/entity.py``
the session's ledger knows in which scope each one waits              ``producer/ledger.py``
the flush (or commit) hook takes it, in the caller's transaction      ``producer/hooks.py``
and writes all that are pending, in order, with one statement         ``producer/write.py``,
                                                                      ``sql/events.py``
after the commit, one NOTIFY for many commits                         ``producer/notifier.py``
====================================================================  ===========================

Around it: ``producer/install.py`` (which sessions have hooks), ``producer/internals.py`` (what
SQLAlchemy does not make public), ``event.py`` (the event), ``event_types.py`` (typed events,
versions, upcasters), ``context.py`` and ``contract.py`` (whose it is and who did it, and what an
event must say of that), ``category.py`` (kinds of work), ``recurring.py`` and
``cron.py`` (recurring events), ``arguments.py`` and ``codec.py`` (what may be stored),
``stable_keys.py`` (idempotency keys), ``inbox.py`` (the receiving side of other systems' messages),
``cancelling.py`` and ``status.py`` (cancel an event, ask what became of it), ``place.py`` (in whose
transaction), ``tables.py`` and ``table_names.py`` (the tables), ``migrations`` (the DDL, frozen),
``schema`` (migrate and verify), ``relay`` (forward to brokers and webhooks), ``webhooks.py`` (sign,
and verify what was received), ``sealing.py`` (secrets in the database), ``operations`` (see and
repair), ``dashboard`` (the same in a browser), ``monitoring`` (health, metrics, traces;
``tracing.py`` is where spans begin),
``embedded`` (a PostgreSQL for demo, tests and development), ``cli`` (``sa-outbox``). The words are
those of ``docs/glossary.md``.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ._version import __version__

__all__ = [
    "AsyncOutboxSession",
    "Category",
    "Contract",
    "Event",
    "Outbox",
    "OutboxError",
    "OutboxSession",
    "Rate",
    "RecordsEvents",
    "Reject",
    "RetryLater",
    "RetryPolicy",
    "SomeFailed",
    "__version__",
    "event_context",
    "event_type",
    "stable_key",
    "upcaster",
]

# Each is imported when somebody asks for it: ``sa-outbox status`` would wait longer for
# SQLAlchemy's ORM, which it has no use for, than for its answer. Type checkers read the first half
# and see plain imports; a test holds the halves together.
if TYPE_CHECKING:
    from .category import Category
    from .context import event_context
    from .contract import Contract
    from .errors import OutboxError, Reject, RetryLater, SomeFailed
    from .event import Event
    from .event_types import event_type, upcaster
    from .outbox import Outbox
    from .producer.entity import RecordsEvents
    from .producer.session import AsyncOutboxSession, OutboxSession
    from .rate import Rate
    from .retry import RetryPolicy
    from .stable_keys import stable_key
else:
    _HOMES = {
        "AsyncOutboxSession": "producer.session",
        "Category": "category",
        "Contract": "contract",
        "Event": "event",
        "Outbox": "outbox",
        "OutboxError": "errors",
        "OutboxSession": "producer.session",
        "Rate": "rate",
        "RecordsEvents": "producer.entity",
        "Reject": "errors",
        "RetryLater": "errors",
        "RetryPolicy": "retry",
        "SomeFailed": "errors",
        "event_context": "context",
        "event_type": "event_types",
        "stable_key": "stable_keys",
        "upcaster": "event_types",
    }

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = value  # the next one who asks does not come here
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
