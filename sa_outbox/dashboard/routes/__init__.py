"""The routes: parse the request, run an operation, show the result or redirect.

==========================  ======================================================================
``reply.py``                what every response needs
``sign_in.py``              sign in with the token, and sign out
``overview.py``             the overview, its stream, and events: nothing here changes anything
``listeners.py``            listeners: all, and one
``listener_actions.py``     pause, resume, rewind, skip
``deliveries.py``           what waits and what runs, retry now and cancel
``dead_letters.py``         dead letters: list and show
``dead_letter_actions.py``  replay, discard, edit
``crons.py``                recurring events, and running one now
``endpoints.py``            webhook endpoints, enable and disable
``catalogue.py``            event types, what is in them and who reads them
``audit.py``                what was done, and how long handlers take
==========================  ======================================================================

Imports ``views``, ``live``, ``query`` and the rooms below them.
"""
