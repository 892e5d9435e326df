"""Delivering events to listeners.

The guarantee. Every listener gets every committed event at least once, and no event of a
transaction that rolled back; what a handler does through the session it is given happens exactly
once. Events of one key are handled in the order of the log (``order="key"``), or all events are
(``order="total"``). An event that can't be handled is a dead letter that keeps its errors.
Listeners do not wait for each other, nor for transactions of others.

What carries it:

=====================  ============================================================================
the horizon            which ids can still appear: ``horizon.py`` (pure), ``looking.py``
the cursor             how far a listener has come: ``progress.py`` (pure), ``gaps.py``
the lease              who may move it: ``lease.py``, ``leasing.py``
partitions             several cursors for one listener: ``partition.py``, ``sharing.py``,
                       ``merging.py`` (pure), ``repartition.py``
=====================  ============================================================================

The path of an event: ``wakeup.py`` or a poll wakes ``services.py``, which has ``looking.py`` look
at the horizon; ``intake.py`` and ``reading.py`` read past the cursor into ``lanes.py``; a
``hand.py`` takes it to ``dispatch.py``, which calls the handler, in a transaction with a session
(``unit.py``) or without; ``outcomes.py`` says what became of it, ``settle.py`` writes that.
``cursor.py`` is the loop around it, one per listener; ``runner.py`` the process. ``ticking.py``
adds recurring events; ``retention.py`` has ``upkeep.py`` remove what is old, once a minute.

What each crash leads to:

==================================  ===============================================================
before the handler ran              another consumer reads the event again
while it ran, with a session        rolled back with its transaction; the event is attempted again
while it ran, without a session     the event is attempted again: at least once
after it ran, before it is settled  the same
in the COMMIT that settles          either all of it happened or nothing; the row tells
of the event itself                 next time it goes alone and is counted before; after
                                    ``max_crashes`` it is a dead letter
==================================  ===============================================================
"""

from sa_outbox.settings import ConsumerSettings

from .repartition import repartition
from .runner import Consumer

__all__ = ["Consumer", "ConsumerSettings", "repartition"]
