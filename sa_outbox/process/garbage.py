"""Garbage collection in a process that has one purpose.

A consumer has many objects alive at a time, those of a batch, and nearly none is part of a cycle.
By default Python looks for cycles after every few hundred of them, and again and again at all that
the program has loaded: a relay spent a third of its time with that.
"""

from __future__ import annotations

import gc

YOUNG = 10_000
"""Objects that are made before the young ones are looked at: those of some batches."""
_USUAL = gc.get_threshold()


def spare_what_is_loaded() -> None:
    """From now on nobody looks at what is loaded now, and less often at what is new. Not where
    the program has settings of its own."""
    if gc.isenabled() and gc.get_threshold() == _USUAL:
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG, *_USUAL[1:])
