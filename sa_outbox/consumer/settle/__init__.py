"""Writing what became of events: the cursor, retries, dead letters, in one transaction.

The invariant: the statement that moves the cursor comes last and names the lease's token and the
old position. If it finds no row, everything in the transaction is rolled back.

==================  ==============================================================================
``outcome.py``      from what a handler raised to what is to be written
``buffer.py``       what is finished and not written yet; writing it under one lock, again after an
                    outage
``writes.py``       which statements settle it (pure)
``execution.py``    runs them on one connection
``audit.py``        the audit's lines for it (pure)
``alerts.py``       the alert that a dead letter adds to the log (pure)
``crash_notes.py``  after a crash: which events are being attempted, noted in the leased row
==================  ==============================================================================

Imports ``shared`` and the rooms below it. A handler's own transaction runs the same statements:
``transaction/``.
"""
