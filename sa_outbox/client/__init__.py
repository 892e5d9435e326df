"""What a program asks about its events, in its own session or connection.

===================  =============================================================================
``client.py``        the methods of an outbox that ask
``caller.py``        whose session or connection runs the statement
``cancellation.py``  ``outbox.cancel``: what has not started never starts; what runs is asked to
                     stop
``status.py``        ``outbox.status``: the status of an event, for each listener
``wait.py``          ``outbox.wait``: until a listener has handled an event
``inbox.py``         ``outbox.inbox``: act once on a message of another system
===================  =============================================================================

Imports ``declare`` and the rooms below it.
"""
