"""What all loops of one consumer share.

====================  ============================================================================
``context.py``        the consumer's settings, connections, statements and observers, in one
                      object
``sync.py``           waking one task, or all that wait; a gate for many, or for one alone
``outage.py``         while the database is away: report it, wait, report that it is back
``relay_outages.py``  relays whose receiver is unreachable, for whoever waits in a drain
``relay_backoff.py``  whether a relay's other side is there, and when to try again
``own_events.py``     adds the events of crons, and alerts
``tally.py``          what one drain has done, and what its limit lets begin
``task_errors.py``    one error out of a task group, as itself
``stop_reason.py``    why a consumer stops, and the exit code of its process
====================  ============================================================================

Imports ``fault``, ``lease``, ``handler``, ``connection`` and ``position``.
"""
