"""Delivering events to listeners.

The guarantee. Every listener gets every committed event at least once, and no event of a
transaction that rolled back; what a handler does through the session it is given happens exactly
once. Events of one key are handled in the order of the log (``order="key"``), or all events are
(``order="total"``). An event that can't be handled is a dead letter that keeps its errors.
Listeners do not wait for each other (except while a process investigates a crash), nor for
transactions of others.

The path of an event, and the packages it passes:

====================  ============================================================================
``consumer.py``       the consumer that a program has: it runs, or drains
``runner.py``         one task group from the start to the last lease released
``assembly.py``       puts together what one run consists of
``lifespans.py``      the program's own clients and pools, around all of its handlers
``supervisor.py``     starts and stops the services, from one list
``services/``         what runs beside the listeners: LISTEN, claims, verification, crons
``work/``             what it works on: claims listeners, renews leases, reads the horizon, wakes
                      every loop
``loop/``             a listener under its lease: read past the cursor, hand out, settle, advance
``lanes/``            which delivery is handled next: in the order of keys, within limits
``queue/``            queues: claim a range of events, then run a loop over it
``handler/``          calls the handler
``transaction/``      around it, if it takes a session: its effects and the cursor, all or nothing
``settle/``           writes the outcome and the cursor in one transaction
``fault/``            decides whether an error is an event's fault
``lease/``            who may move a cursor
``position/``         a cursor's progress, and which ids can still appear
``shared/``           what all loops share
``connection/``       how they talk to the database
``upkeep/``           removes what is old
``idle/``             nothing to do: no connection, until something wakes it
``drain.py``          waits until everything that is committed now is handled
``repartition.py``    changes how many partitions a listener has, while its consumers run
====================  ============================================================================

Imports ``outbox``, ``schema``, ``logs`` and the rooms below them. Its own packages import downwards
only: ``position``, ``connection`` and ``handler`` import none of the others; ``lease`` and
``fault`` build on these; then come ``shared``, ``settle``, ``transaction``, ``lanes``, ``loop`` and
``queue``; next to them, ``services`` and ``upkeep`` build on ``shared``.

What each crash leads to:

==================================  ===============================================================
before the handler ran              another consumer reads the event again
while it ran, with a session        rolled back with its transaction; the event is attempted again
while it ran, without a session     the event is attempted again: at least once
after it ran, before it is settled  the event is attempted again: at least once
in the COMMIT that settles          either all of it happened or nothing; the row shows which
caused by the event itself          it is noted, then attempted alone and marked beforehand; after
                                    ``max_crashes`` it is a dead letter: ``fault/quarantine.py``
only the network failed             the holder, still alive, retracts its crash: ``lease/alibi.py``
==================================  ===============================================================

Whose fault an error is, and what decides it:

==================================  ===============================================================
the database is unreachable         nobody's; wait: ``connection/errors.py``
it came back without some commits   nobody's; start from the rows: ``lease/continuity.py``,
                                    ``work/memory.py``
it refuses to read or write a row   that event's: ``fault/refusals.py``, found by
                                    ``loop/isolation.py``
a session was lost with an event    that event's, if it happens again: ``fault/suspects.py``,
                                    ``fault/attribution.py``
a relay's receiver is unreachable   nobody's; wait, but not in a drain: ``shared/relay_outages.py``
the handler raised                  an attempt: ``settle/outcome.py``
==================================  ===============================================================
"""

from sa_outbox.settings import ConsumerSettings

from .consumer import Consumer
from .repartition import repartition
from .shared.tally import Drained

__all__ = ["Consumer", "ConsumerSettings", "Drained", "repartition"]
