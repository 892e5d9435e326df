"""aiokafka's log while a broker is away: it writes some lines for every attempt to reach it, ten in
a second and more. Each kind of line comes once a minute here, and the observations ``RelayAway``
and ``RelayBack`` say the rest."""

from __future__ import annotations

import logging
from time import monotonic

EVERY = 60.0
LOGGERS = (
    "aiokafka",
    "aiokafka.conn",
    "aiokafka.cluster",
    "aiokafka.producer.sender",
    "aiokafka.producer.producer",
)
"""Each has to be asked: a filter of a logger does not see what comes from those below it."""


class Seldom(logging.Filter):
    """Lets a warning or an error through when none of its kind was for a minute."""

    def __init__(self) -> None:
        super().__init__()
        self._next: dict[tuple[str, object], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        kind, now = (record.name, record.msg), monotonic()
        if now < self._next.get(kind, 0.0):
            return False
        self._next[kind] = now + EVERY
        return True

    def begin(self) -> None:
        for name in LOGGERS:
            logging.getLogger(name).addFilter(self)

    def end(self) -> None:
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(self)
