"""Statements on the log.

==========================  ======================================================================
``events.py``               adding events
``horizon.py``              what is visible, and who may still add below it
``holders.py``              the transactions that may still add events, and their sessions
``reads.py``                reading events for a listener
``matching.py``             which events a listener wants: types, partition, filter
``large_events.py``         reading events that may be too large or unreadable
``listener_partitions.py``  which partition of a listener an event belongs to; changing how many
                            there are
``partitions.py``           partitions of the log: listing, creating and dropping them
``catch_all.py``            the catch-all partition: giving its events partitions of their own
``deletion.py``             deleting single events
``own_events.py``           for tests: the events of one transaction; emptying the tables
==========================  ======================================================================

Imports ``server``.
"""
