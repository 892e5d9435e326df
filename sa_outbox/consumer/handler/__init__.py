"""Calling the user's handler for one delivery.

===============  =================================================================================
``delivery.py``  an event in flight through one listener, and loading it from its row
``call.py``      one call: its arguments, its time limit, its errors
``deadline.py``  the time limit of a call, and what cancels it
``session.py``   the session a handler gets: its transaction belongs to the consumer
===============  =================================================================================

Imports no other package and never uses the database: the transaction around a call is
``transaction/``.
"""
