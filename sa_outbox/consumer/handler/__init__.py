"""Calling the user's handler for one delivery.

==================  ==============================================================================
``delivery.py``     an event in flight through one listener, and loading it from its row
``call.py``         one call: its arguments, its time limit, its errors
``deadline.py``     the time limit of a call, and what cancels it
``isolation.py``    the context of a call: what a handler sets in it ends with the call
``prelude.py``      before the call: the context of its log lines, and the report that it starts
``log_context.py``  what structlog adds to the lines that a handler logs
``thread_call.py``  the call of a sync handler, in its thread
``returned.py``     what a handler returned
``session.py``      the session a handler gets: its transaction belongs to the consumer
==================  ==============================================================================

Imports no other package and never uses the database: the transaction around a call is
``transaction/``.
"""
