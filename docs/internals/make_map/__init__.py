"""``make map``: draws the rooms and traces the walks of an event, into the pages beside this.

==============  ===================================================================================
``imports.py``  which module imports which, read from the source; rooms, and cycles between them
``drawing.py``  the rooms as a picture
``rooms.py``    the page ``rooms.md``
``tracer.py``   counts the calls of functions in ``sa_outbox``, in every thread
``scenes.py``   the five walks: what listens, and what its handler does
``walks.py``    one event through a running consumer, a few times
``pages.py``    the pages ``walk-*.md``, written and read
==============  ===================================================================================

Tests make everything again and compare it with the pages: ``tests/docs/test_internals.py``.
"""
