"""Inspecting and repairing: what the command line and the dashboard do, as functions.

Each takes a ``Connection`` and ``Tables``; async callers use ``run_sync``. None commits: that is up
to the caller. They return frozen dataclasses; no SQL and no row leaves this package.

=======================  =========================================================================
``overview.py``          the listeners, their backlog, and who works on them
``claims.py``            what the processes of queues have claimed
``deliveries.py``        what waits for a retry, its time or an earlier event; who works on what
``delivery_change.py``   retry some of these now, or cancel them
``throughput.py``        how many events the listeners handled between two overviews
``events.py``            finds events, and the path of one through every listener
``causation.py``         what caused an event, and what it caused
``erasure.py``           erases one event and every copy of it
``dead_letters.py``      lists and shows dead letters
``resolution.py``        replays, discards or edits them
``edit_check.py``        whether an outbox would take an edited one
``listeners.py``         pause, resume, rewind, skip, retire
``listener_change.py``   one such change: rows locked, cursors placed, audit written
``endpoints.py``         webhook endpoints: add, list, change, move, rotate, disable, remove
``endpoint.py``          one endpoint as it is stored, and its secrets
``endpoint_view.py``      endpoints as people see them: without secrets
``crons.py``              recurring events: when they are due; run one now
``audit.py``              what was done, by whom and why
``durations.py``          how long handlers take, as far as the audit knows
``choices.py``            what there is to filter by
``sealing.py``           secrets in the database: sealed with a key that is not in it
``known_names.py``       what there is instead of a name that nobody knows
``operator.py``          who changes something by hand, and why; wakes the consumers
``statement_runner.py``  runs a statement for an operator: errors say what to do
=======================  =========================================================================

Imports ``client`` and the rooms below it.
"""
