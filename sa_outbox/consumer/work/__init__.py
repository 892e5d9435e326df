"""What a consumer works on, and what keeps that going: one place for all listeners and queues.

====================  ============================================================================
``workload.py``       the listeners under their leases, and the queues
``lease_keeper.py``   claims listeners, renews all leases
``horizon_watch.py``  after a NOTIFY or a poll: offers new events to idle listeners at once, reads
                      the horizon, wakes every loop
``fan_out.py``        passes on what others notify beside new events
``memory.py``         restarts loops from their rows after a failover lost commits
``backlog.py``        measures the backlog, for observers that want it
====================  ============================================================================

Imports ``queue``, ``services`` and the rooms below them.
"""
