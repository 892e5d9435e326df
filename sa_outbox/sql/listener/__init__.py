"""Statements on rows of listeners, and on the small tables.

=================  ===============================================================================
``cursors.py``     registering listeners, moving their cursors
``leases.py``      claiming and releasing leases, announcing who shares them
``renewal.py``     renewing leases, of listeners and of ranges of queues
``deliveries.py``  deliveries that have a row, and dead letters
``suspects.py``    what is known about events that may have crashed a process
``crons.py``       which tick of each recurring event was the last to get its event
``endpoints.py``   webhook endpoints
``inbox.py``       messages of other systems that were acted on
``expiry.py``      deleting rows that have expired
=================  ===============================================================================

Imports ``log`` and ``server``.
"""
