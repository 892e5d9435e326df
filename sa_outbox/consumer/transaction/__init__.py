"""The transaction around handlers that take a session.

Invariant: the transaction that holds the effects of an event is committed if and only if the
listener's row says, in the same transaction, that the event is settled, under the present lease.

===================  =============================================================================
``transaction.py``   attempt one event, or a batch, then others that wait, and commit
``lent_session.py``  the session a handler gets, async or in a thread; the statements that settle,
                     and the COMMIT
``group.py``         which events share a transaction, and how many (pure)
``joined.py``        the events after the first, each in its savepoint
``chain.py``         of a sync handler, several of them in one call of a thread
``savepoint.py``     the savepoint of each event after the first
===================  =============================================================================

What one event does to the others of its transaction:

===================================  ==============================================================
its handler raises                   rolled back to its savepoint; the others are committed
a statement of its handler fails     that too; and it is attempted alone before it counts
it left its savepoint aborted        that too: its savepoint can't be released
it ends the transaction              all are attempted again, it alone
its time is up                       if its connection is lost by that: all again, it alone, once
                                     its server process is ended, which has the locks of all
the connection is lost               all are attempted again, each alone, as suspects
the COMMIT is refused                all are attempted again, each alone: nobody knows whose it is
the answer to the COMMIT is lost     the listener's row shows whether all of it happened, or none
===================================  ==============================================================

Imports ``settle`` and the rooms below it.
"""
