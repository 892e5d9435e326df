"""aiokafka's log while a broker is unreachable: it writes several lines for every attempt, ten or
more per second. Here each kind of line is logged once a minute, and the observations ``RelayAway``
and ``RelayBack`` report the rest."""

from __future__ import annotations

import logging
from time import monotonic

REPEAT_SECONDS = 60.0
LOGGERS = (
    "aiokafka",
    "aiokafka.conn",
    "aiokafka.cluster",
    "aiokafka.producer.sender",
    "aiokafka.producer.producer",
)
"""Each needs its own filter: a logger's filter does not see records of its children."""


class Seldom(logging.Filter):
    """Lets a warning or error through if none of its kind was logged within a minute."""

    def __init__(self) -> None:
        super().__init__()
        self._next: dict[tuple[str, object], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        kind, now = (record.name, record.msg), monotonic()
        if now < self._next.get(kind, 0.0):
            return False
        self._next[kind] = now + REPEAT_SECONDS
        return True

    def begin(self) -> None:
        for name in LOGGERS:
            logging.getLogger(name).addFilter(self)

    def end(self) -> None:
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(self)
