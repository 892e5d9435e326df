"""Having nothing to do: no connection, so that a database that is suspended while nobody is
connected (Neon, Aurora) can be.

================  ================================================================================
``outlook.py``    asks the database what is committed, and when something is due
``watcher.py``    notices that there has been nothing to do for long enough
``sleep.py``      then there is no connection, until something wakes it
``restarts.py``   restarts a consumer that stops: after a sleep, or with other endpoints
================  ================================================================================

Nobody hears a notification meanwhile, so whoever sleeps has to be woken: ``Consumer.wake``.
Invariant: what is done before ``wake`` is called is noticed without waiting for anything else. If
there is a sleep, the call ends it. Otherwise the call is counted, and no sleep begins that was
decided on what the database said earlier. What this process commits needs no call: a sleep notices
it, and what was committed before there was one is in the log when it is read for the last time.
That is when the last lease is released and LISTEN has ended, so nothing that is heard or handled on
the way to sleep is forgotten either.

Imports ``drain.py`` and the rooms below it.
"""
