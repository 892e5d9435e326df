"""The arithmetic of positions: what is final, what was read, what is settled. Pure, no I/O.

================  ================================================================================
``horizon.py``    which ids can still appear: the grace period
``gaps.py``       a set of positions, kept as ranges: what is below a cursor and not settled
``progress.py``   a listener's progress: read, settled, saved
``partition.py``  which partition of a listener an event belongs to
``merge.py``      from the cursors of old partitions to the initial state of new ones
``bounds.py``     which ids each partition of the log is for, and which partitions are missing
================  ================================================================================

Imports no other package of the consumer.
"""
