"""Adding events in the caller's transaction.

The invariant: an event is written by the same transaction as its data, in a statement of that
transaction, or not at all.

=================  ===============================================================================
``session.py``     ``session.add_event(...)``, for sync and async sessions
``pending.py``     an event waiting to be written: checked and serialised
``entity.py``      ``entity.record_event(...)``: kept with the object until it is flushed
``producer.py``    the side of an outbox that adds events: factories, ``install``, ``flush``
``install.py``     which sessions have hooks, and of which outbox
``hooks.py``       the eight session events that write an event when its data is written
``ledger.py``      a session's events until its transaction ends
``internals.py``   the private parts of SQLAlchemy that the hooks need
``binds.py``       which engine of a session the outbox's statements go to
``bulk.py``        a warning where events of entities are not collected
``write.py``       writes what is pending: in order, with one statement
``statements.py``  what is sent to write events into the tables of one outbox
``capture.py``     where a test watches events being added
``faults.py``      errors of the database without the row that they quote
``notifier.py``    after the commit: one NOTIFY for many commits, off the write path
``sender.py``      one database's connection for NOTIFY
=================  ===============================================================================

Imports ``sql``, ``settings``, ``observe`` and the rooms below them; of libraries, SQLAlchemy only.
"""
