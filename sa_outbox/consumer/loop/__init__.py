"""The delivery loop of one listener under one lease.

``holder.py`` runs a loop for each lease it gets. ``loop.py`` reads as the story: take in what the
source has next, hand it to tasks, settle, wait. The loop knows its source by a narrow protocol
only, and a task of its loop nothing but the port.

====================  ============================================================================
``holder.py``         a loop for every lease: from the claim until it is released or lost
``loop.py``           the loop
``source.py``         what a loop asks of its source, and a source of its loop
``log_source.py``     the log as a source: new events, and deliveries that are due
``due.py``            deliveries with a row: which are due, and which keys they keep waiting
``new_events.py``     the next events, and the batch after them, which is read meanwhile
``reader.py``         reads events; the horizon decides how far
``isolation.py``      finds the one event that the database can't read or settle
``port.py``           what the tasks of a loop share: what is in flight, finished, settled
``task.py``           takes deliveries from the lanes and has them attempted
``station.py``        a handler's calls and transactions; a queue may have several handlers
``conclusion.py``     what the end of an attempt means: settle, put back, restart, stop
====================  ============================================================================

Imports ``lanes`` and the rooms below it.
"""
