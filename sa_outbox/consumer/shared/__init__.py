"""What all loops of one consumer share.

====================  ============================================================================
``context.py``        the consumer's settings, connections, statements and observers, in one
                      object
``horizon_bell.py``   asking for a read of the horizon, with the reason
``sync.py``           waking one task; a gate for many or for one alone
``reads.py``          reading events: plain while they are small, careful otherwise
``outage.py``         while the database is away: report it, wait, report that it is back
``relay_outages.py``  relays whose receiver is unreachable, for whoever waits in a drain
``throttle.py``       obey a notification at once, but not too often
``task_errors.py``    one error out of a task group, as itself
``stop_reason.py``    why a consumer stops, and the exit code of its process
====================  ============================================================================

Imports ``fault``, ``lease``, ``handler``, ``connection`` and ``position``.
"""
