"""``python -m sa_outbox.consume``: a consumer as a process.

====================  ============================================================================
``command.py``        the command and its options; its first line
``process.py``        from these to a running consumer, and its exit code
``loader.py``         from ``module:attribute`` to the outbox it names
``options.py``        the settings of a consumer as options and environment variables
``database_wait.py``  the database may come up after the process
``logs.py``           observations as log lines
``monitor.py``        the monitor that the options request
``garbage.py``        how often Python's garbage collector runs
``streams.py``        standard streams that are closed
``stop.py``           signals, and the end by force
``exit_codes.py``     the exit codes
====================  ============================================================================

Imports ``monitoring`` and the rooms below it, ``consumer`` among them.
"""
