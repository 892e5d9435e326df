"""Statements about the server, and building blocks of other statements.

===================  =============================================================================
``names.py``         names of tables, quoted
``times.py``         the time of a statement; intervals to times that may be infinite
``timed_text.py``    ``text`` for statements, with their time bound
``notify.py``        waking the consumers
``transactions.py``  how long our transactions may idle
``patience.py``      how long the statements of one transaction may take
``tenants.py``       whose rows a transaction may see
``identity.py``      which database this is, and which one the tables were last adopted in
``databases.py``     databases for tests: copied, dropped
``catalog.py``       what exists, who owns it, what is allowed
===================  =============================================================================

Imports no other package of statements.
"""
