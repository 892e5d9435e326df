"""Statements for operators: what they query, and what they change.

=======================  =========================================================================
``overview.py``          the state of everything; cheap on a log of any length
``claims.py``            what the processes of queues have claimed
``throughput.py``        how many events listeners have passed
``status.py``            the status of one event
``searches.py``          finding events and dead letters
``resolution.py``        replay, discard, edit dead letters
``listener_changes.py``  pause, rewind, skip, retire
``erasure.py``           erasing one event, wherever there is a copy of it
``audit.py``             what happened to an event, to whom and by whom
``doctor.py``            what the catalogs, statistics and settings of the server say
=======================  =========================================================================
"""
