"""The transactional outbox for SQLAlchemy on PostgreSQL.

A transaction that commits has its events; one that rolls back has none. The path of an event, from
``session.add_event(...)`` to the dead letter:

==================================================================  ==============================
``session.add_event(...)`` checks the event and remembers it        ``producer/session.py``
the flush hook takes it, in the caller's transaction                ``producer/hooks.py``
and writes all that are pending, in order, with one statement       ``producer/write.py``
after the commit, one NOTIFY for many commits                       ``producer/notifier.py``
a consumer is woken, or polls, and asks which events are final      ``consumer/services/``
each listener reads past its cursor, under its lease                ``consumer/loop/reader.py``
a queue claims a range of events, under a lease of its own          ``consumer/queue/claim.py``
the handler is called, in a transaction if it wants a session       ``consumer/handler/call.py``
the outcome is decided: done, retry, park or dead                    ``policy/delivery.py``
and written with the cursor, in one transaction                     ``consumer/settle/writes.py``
a retry waits in a row of its own until it is due                   ``sql/listener/deliveries.py``
after its last attempt it is a dead letter with all its errors      ``operations/dead_letters.py``
==================================================================  ==============================

The rooms, each with a map in its docstring:

===============  =================================================================================
``outbox.py``    the one object a program creates
``settings.py``  every setting; ``errors.py`` every error; ``observe.py`` every observation
``clock.py``     the time that statements and decisions go by; tests move it
``event/``       what an event is
``policy/``      retry or give up, when, how fast: decisions without I/O
``declare/``     listeners, recurring events and lifespans
``producer/``    adding events
``client/``      an event's status, cancelling it, the inbox
``consumer/``    delivering events; ``consume/`` runs it as a process
``relay/``       forwarding to brokers and webhooks; ``webhooks.py`` verifies what was received
``database/``    the tables; ``sql/`` every statement
``migrations/``  the DDL, frozen; ``schema/`` applies and verifies it
``operations/``  inspect and repair, through ``cli/`` (``sa-outbox``) or ``dashboard/``
``doctor/``      what is wrong; ``monitoring/`` health, metrics, traces; ``logs/`` log lines
``embedded/``    a PostgreSQL for tests and for ``demo/``
``catalog/``     which events there are, and who reads them: AsyncAPI, and what a change breaks
``contrib/``     for programs inside a web framework
``testing/``     a pytest plugin, for tests of programs that use this package
===============  =================================================================================

docs/glossary.md defines the terms.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ._version import __version__

__all__ = [
    "AsyncOutboxSession",
    "Category",
    "Contract",
    "Event",
    "NoSecrets",
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

# Names are imported on first use: otherwise ``sa-outbox status`` would spend longer importing
# SQLAlchemy's ORM, which it does not need, than answering. Type checkers read the first branch and
# see plain imports; a test keeps the two branches in step.
if TYPE_CHECKING:
    from .errors import OutboxError, Reject, RetryLater, SomeFailed
    from .event.context import event_context
    from .event.event import Event
    from .event.stable_keys import stable_key
    from .event.types import event_type, upcaster
    from .outbox import Outbox
    from .policy.category import Category
    from .policy.contract import Contract
    from .policy.rate import Rate
    from .policy.retry import RetryPolicy
    from .policy.secrets import NoSecrets
    from .producer.entity import RecordsEvents
    from .producer.session import AsyncOutboxSession, OutboxSession
else:
    _HOMES = {
        "AsyncOutboxSession": "producer.session",
        "Category": "policy.category",
        "Contract": "policy.contract",
        "Event": "event.event",
        "NoSecrets": "policy.secrets",
        "Outbox": "outbox",
        "OutboxError": "errors",
        "OutboxSession": "producer.session",
        "Rate": "policy.rate",
        "RecordsEvents": "producer.entity",
        "Reject": "errors",
        "RetryLater": "errors",
        "RetryPolicy": "policy.retry",
        "SomeFailed": "errors",
        "event_context": "event.context",
        "event_type": "event.types",
        "stable_key": "event.stable_keys",
        "upcaster": "event.types",
    }

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = value  # found directly from now on
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
