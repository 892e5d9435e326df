"""The event: what it is, what it may hold, and what surrounds it. Plain Python, no I/O.

====================  ============================================================================
``event.py``          ``Event``: a fact, written once in the transaction that made it true
``ids.py``            an event's id, made by the producer
``row.py``            the columns of the row that an event is read as
``stored.py``         from a row to the event that a handler gets
``wanted.py``         the payload that a handler's annotation asks for: JSON, or which class
``types.py``          typed events: a class, its name in the log, versions and upcasters
``type_patterns.py``  event types by name or pattern, and which of several applies
``validation.py``     what ``add_event`` accepts beside the payload; wrong arguments are refused
                      here
``codec.py``          payload to JSON and back; strict on the way in
``objects.py``        objects of pydantic, msgspec, attrs and dataclasses, written and read
``stable_keys.py``    ``stable_key``: an idempotency key from what an event is about
``context.py``        ``event_context``: tenant, actor and request of an event
``causation.py``      which event is being handled: events its handler adds link to it
``origin.py``         where an event comes from, for logs
``tracing.py``        where spans begin, if tracing is on
====================  ============================================================================

Imports ``errors`` and ``clock``.
"""
