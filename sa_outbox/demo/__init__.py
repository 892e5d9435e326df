"""``sa-outbox demo``: a small shop that commits orders, and listeners that handle its events.

``shop.py`` places orders and writes their events, ``listeners.py`` handles those, ``counts.py``
counts both; ``display.py`` shows that on a terminal, ``summary.py`` compares it with the database
at the end, ``program.py`` runs it all.

Imports ``consumer``, ``embedded`` and the rooms below them.
"""

from .program import run

__all__ = ["run"]
