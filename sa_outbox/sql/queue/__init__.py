"""Statements of queues.

===================  =============================================================================
``claims.py``        the one cursor that all processes share, and claiming events from it
``ranges.py``        events that one process has claimed, under a lease
``cancellation.py``  cancelling deliveries, not started or running
===================  =============================================================================

Imports ``listener`` and the rooms below it.
"""
