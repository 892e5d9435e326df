"""Where a consumer inside a program logs: wherever the program does."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from .log import Log

if TYPE_CHECKING:
    from ..settings import LogStarts
    from .lines import Level

NAME = "sa_outbox.consumer"


class StandardLogger:
    """The program's ``logging``, called as structlog is: a text and fields."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, text: str, **values: object) -> None:
        self._log(logging.DEBUG, text, values)

    def info(self, text: str, **values: object) -> None:
        self._log(logging.INFO, text, values)

    def warning(self, text: str, **values: object) -> None:
        self._log(logging.WARNING, text, values)

    def error(self, text: str, **values: object) -> None:
        self._log(logging.ERROR, text, values)

    def _log(self, level: int, text: str, values: dict[str, object]) -> None:
        """The fields are part of the text, and one attribute of the record: ``record.outbox``."""
        if not self._logger.isEnabledFor(level):
            return
        # Not exc_info: that would show the error's text, which quotes data.
        trace = values.pop("exception", None)
        # repr: a text from the database must not look like another line.
        shown = "".join(f" {name}={value!r}" for name, value in values.items() if value is not None)
        below = "" if trace is None else f"\n{trace}"
        self._logger.log(level, "%s", f"{text}{shown}{below}", extra={"outbox": values})


def program_log(level: Level, starts: LogStarts) -> Log:
    """Lines to structlog if the program has configured it, else to ``logging``."""
    structlog: Any = sys.modules.get("structlog")
    if structlog is not None and structlog.is_configured():
        logger = structlog.get_logger(NAME)
    else:
        logger = StandardLogger(logging.getLogger(NAME))
    return Log(logger, level, starts=starts)
