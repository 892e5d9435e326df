"""Maintenance: partitions ahead of need, and deletion of what has expired.

=================  ===============================================================================
``service.py``     a round each ``maintenance_interval`` while a consumer runs
``command.py``     one round by itself, for ``sa-outbox prune``
``round.py``       one round: what is created, what is removed, and what blocks that
``partitions.py``  creates, drops and adopts log partitions without making writers wait
``events.py``      deletes single events where no whole partition can go yet
``rows.py``        deletes expired rows of the other tables, in small transactions
=================  ===============================================================================

Imports ``shared``, ``connection`` and ``position``.
"""
