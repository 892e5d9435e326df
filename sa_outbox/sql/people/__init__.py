"""Statements for operators: what they query, and what they change.

=======================  =========================================================================
``overview.py``          the state of everything; cheap on a log of any length
``claims.py``            what the processes of queues have claimed
``deliveries.py``        which deliveries wait; making one due
``throughput.py``        how many events listeners have passed
``status.py``            the status of one event
``causation.py``         what caused an event, and what it caused
``searches.py``          finding events and dead letters
``resolution.py``        replay, discard, edit dead letters
``listener_changes.py``  pause, rewind, skip, retire
``erasure.py``           erasing one event, wherever there is a copy of it
``audit.py``             what happened to an event, to whom and by whom
``records.py``           what the audit has, and how long attempts took
``crons.py``             recurring events, and a note on one that is run now
``choices.py``           what there is to filter by
``doctor.py``            what the catalogs, statistics and settings of the server say
=======================  =========================================================================

Imports ``queue`` and the rooms below it.
"""
