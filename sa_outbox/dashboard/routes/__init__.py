"""The routes: parse the request, run an operation, show the result or redirect.

==========================  ======================================================================
``reply.py``                what every response needs
``sign_in.py``              sign in with the token, and sign out
``overview.py``             the overview, its stream, and events: nothing here changes anything
``listeners.py``            listeners: all, and one
``listener_actions.py``     pause, resume, rewind, skip
``dead_letters.py``         dead letters: list and show
``dead_letter_actions.py``  replay, discard, edit
==========================  ======================================================================
"""
