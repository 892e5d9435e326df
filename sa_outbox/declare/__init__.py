"""What a program declares: listeners, recurring events and lifespans.

======================  ==========================================================================
``declaration.py``      what ``@outbox.listener(...)`` does with its arguments
``queue.py``            what ``outbox.queue(...)`` returns: a queue with a handler or several
``listener.py``         a listener and its options
``type_patterns.py``    what ``on=`` says
``handler.py``          how a handler wants to be called, read from its signature
``recurring.py``        what ``outbox.cron(...)`` makes
``cron.py``             when a recurring event is due, in a time zone
``cron_expression.py``  reading a cron expression
``lifespan.py``         what ``@outbox.lifespan`` takes
======================  ==========================================================================

Imports ``producer`` (a recurring event is checked like any other) and the rooms below it.
"""
