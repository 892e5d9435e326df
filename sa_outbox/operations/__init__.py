"""Seeing and repairing: what the command line and the dashboard do, as functions.

Each takes a ``Connection`` and the ``Tables`` it asks; async callers use ``run_sync``. None
commits: the caller's transaction decides. What they return are frozen dataclasses; no SQL and no
row leaves this package.
"""
