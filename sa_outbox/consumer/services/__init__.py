"""What runs beside the listeners, one loop each.

========================  ========================================================================
``registration.py``       makes the listeners known to the database: where each cursor begins
``verification.py``       the assumptions that reading relies on: checked at the start and while
                          running
``copies.py``             a copy of the database acts on nothing outside it until somebody adopts
                          it
``wakeup.py``             LISTEN: look again. A hint; the table is the truth
``horizon_reader.py``     asks the database for the horizon, once per wakeup, for all listeners
``lease_coordinator.py``  who shares the listeners: claims them, releases them
``crons.py``              adds the event of each tick, in whichever process comes first
``clock_watch.py``        wakes what waits for a time when a test moves the clock
``endpoints.py``          webhook endpoints in the database: read at the start, watched for
                          changes
``alerts.py``             alerts that no dead letter causes: an orphaned listener, a stalled
                          horizon
``watchdog.py``           notices that something blocks the event loop
========================  ========================================================================

Imports ``shared`` and the rooms below it; ``supervisor.py`` starts them.
"""
