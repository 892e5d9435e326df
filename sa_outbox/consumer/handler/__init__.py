"""Calling the user's handler for one delivery.

===================  =============================================================================
``delivery.py``      an event in flight through one listener
``arguments.py``     what it gets: an event made of its row, or those of a batch that can be read
``call.py``          one call: its time limit, its errors
``deadline.py``      the time limit of a call, and what cancels it
``call_context.py``  the context of a call: its event for its log lines, and the report of its start
``thread_call.py``   the call of a sync handler, in its thread
``returned.py``      what a handler returned
``session.py``       the session a handler gets: its transaction belongs to the consumer
===================  =============================================================================

Imports no other package of the consumer and never uses the database: the transaction around
a call is ``transaction/``.
"""
