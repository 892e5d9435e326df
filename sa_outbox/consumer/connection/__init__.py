"""How the consumer talks to the database.

======================  ==========================================================================
``engines.py``          from what a consumer is given to the engines it uses, and how to connect
``schema_location.py``  in which schema the tables are: resolved once, at startup
``connections.py``      its own connections: bare asyncpg, apart from the pool that handlers use
``statements.py``       the statements of one outbox, rendered once
``errors.py``           what an error means: unreachable, refused, or transient
``shield.py``           work that must not be cancelled midway
======================  ==========================================================================

Imports no other package of the consumer. Every error is classified here first: see ``errors.py``.
"""
