"""Ids of events: made by the producer, ordered by time."""

from __future__ import annotations

import os
import time
from random import Random
from uuid import UUID, SafeUUID

_new, _set = object.__new__, object.__setattr__

# Not os.urandom: that is a system call per event. Not the module-level generator: programs seed
# that one, and two processes with one seed would generate the same ids.
_random = Random()  # noqa: S311 - an id, not a secret
os.register_at_fork(after_in_child=_random.seed)


def uuid7() -> UUID:
    """A version 7 UUID: Unix milliseconds, 12 bits of the fraction, 62 random bits.

    Being ordered by time, it keeps index pages warm. Not a secret: it reveals when it was created.
    """
    milliseconds, fraction = divmod(time.time_ns(), 1_000_000)
    made = _new(UUID)  # without its checks of what the number may be: two thirds of the time
    _set(
        made,
        "int",
        (milliseconds & 0xFFFF_FFFF_FFFF) << 80
        | 0x7 << 76
        | (fraction * 4096 // 1_000_000) << 64
        | 0b10 << 62
        | _random.getrandbits(62),
    )
    _set(made, "is_safe", SafeUUID.unknown)
    return made
