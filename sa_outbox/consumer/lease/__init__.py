"""The right to work on a listener: a term that ends by itself, identified by its token.

The invariant: every write under a lease names its token, and whoever claims raises the token first,
so nothing of an older term can be written. A holder also stops trusting its lease before the
database does, so that it rarely comes to that.

=================  ===============================================================================
``lease.py``       one term: its token, when to stop trusting it; waiting for the answer to a claim
``renewal.py``     renewing: how often, and what the answer means
``shares.py``      which listeners and partitions a process should hold (pure)
``alibi.py``       a holder that was cut off but alive reports it: no crash is counted
``continuity.py``  whether the database still matches what this process remembers
=================  ===============================================================================

Imports ``position`` and ``connection``. ``services/lease_coordinator.py`` claims and
``work/lease_keeper.py`` keeps what is held.
"""
