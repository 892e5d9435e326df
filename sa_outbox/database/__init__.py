"""The tables: their names, their columns, and the rights on them.

=======================  =========================================================================
``names.py``             where the tables are and what they are called
``tables.py``            the tables as SQLAlchemy Core knows them
``rights.py``            which rights each kind of role needs, as data
``faults.py``            what a person can fix when the database refuses
``swallowed.py``         notices events that a rule or a trigger on the log has swallowed
``statement_runner.py``  runs a statement for a caller: errors tell what to fix
=======================  =========================================================================

Imports ``event`` and ``errors``. DDL is in ``migrations``, statements are in ``sql``.
"""
