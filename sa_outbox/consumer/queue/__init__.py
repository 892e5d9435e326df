"""Queues: one listener whose events any number of processes share.

A process claims a range of events under a lease of its own and runs a delivery loop over it. What
is not settled when the lease ends is claimed again, by anybody.

======================  ==========================================================================
``queue.py``            the loop: claim ranges, work on them, wait
``pace.py``             how many events a range has, and how many ranges a process holds (pure)
``selection.py``        which events to claim, and where the queue's cursor is then (pure)
``urgency.py``          which events come before their turn: priorities, and neglected tenants
``claim.py``            the one transaction that makes a range ours
``range_source.py``     a range as a source, and its loop: everything is there from the start
``cancel_requests.py``  what others ask a holder to cancel
======================  ==========================================================================

Imports ``loop`` and the rooms below.
"""
