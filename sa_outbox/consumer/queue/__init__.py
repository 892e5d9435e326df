"""Queues: one listener whose events any number of processes share.

A process claims a range of events under a lease of its own and runs a delivery loop over it. What
is not settled when the lease ends is claimed again, by anybody.

======================  ==========================================================================
``queue.py``            the loop: claim ranges, work on them, wait
``claim.py``            whose turn it is (the log, a retry, a range that was left), and the one
                        transaction that makes a range ours
``remembered.py``       what is known of the queue's row since the last claim (pure)
``durability.py``       whether that transaction waits for the disk (pure)
``urgency.py``          which events of the log come next, or before: priorities, neglected tenants
``selection.py``        what is claimed, how many at once, and where the cursor is then (pure)
``range_source.py``     a range as a source, and its loop: everything is there from the start
``cancel_requests.py``  what others ask a holder to cancel
======================  ==========================================================================

Imports ``loop`` and the rooms below it.
"""
