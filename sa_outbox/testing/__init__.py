"""For tests of programs that use sa_outbox: a pytest plugin, and what its fixtures give.

pytest finds the plugin by itself (entry point ``pytest11``). Nothing of this is imported, and
nothing started, before a test asks for a fixture.

=====================  ===========================================================================
``plugin.py``          the fixtures, and the settings in pytest's configuration
``async_fixtures.py``  the same connection for pytest-asyncio and for anyio, in the test's loop
``capture.py``         which events were added, and what became of their transaction
``added_events.py``    ``outbox_events``: the events as a list, and what is expected of them
``differences.py``     what is expected of an event, and in what another one differs
``handler_rounds.py``  ``deliver(session)``: calls handlers in the test's own transaction
``handler_pass.py``    one listener: which events are due, and what becomes of them
``transaction.py``     the test's transaction, as handlers get it
``consumer_run.py``    ``drain(engine)``: a real consumer, for what is committed
``deliveries.py``      what became of each event, for each listener
``server.py``          one PostgreSQL for a run, whatever number of processes it has
``databases.py``       a migrated database, and copies of it
``loop_thread.py``     runs a coroutine for a test without an event loop
=====================  ===========================================================================

docs/testing.md shows how they are used.

Imports ``consume``, ``embedded`` and the rooms below them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = [
    "AddedEvent",
    "AddedEvents",
    "Clock",
    "Deliver",
    "Deliveries",
    "Delivery",
    "Drain",
    "deliver",
    "drain",
    "empty",
]

# Imported on first use: pytest loads the plugin in every project that has sa_outbox installed.
if TYPE_CHECKING:
    from sa_outbox.clock import Clock

    from .added_events import AddedEvent, AddedEvents
    from .consumer_run import Drain, drain
    from .databases import empty
    from .deliveries import Deliveries, Delivery
    from .handler_rounds import Deliver, deliver
else:
    _HOMES = {
        "AddedEvent": ".added_events",
        "AddedEvents": ".added_events",
        "Clock": "sa_outbox.clock",
        "Deliver": ".handler_rounds",
        "Deliveries": ".deliveries",
        "Delivery": ".deliveries",
        "Drain": ".consumer_run",
        "deliver": ".handler_rounds",
        "drain": ".consumer_run",
        "empty": ".databases",
    }

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name], __name__), name)
        globals()[name] = value  # found directly from now on
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
