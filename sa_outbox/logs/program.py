"""Where a consumer inside a program logs: wherever the program does."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from ..policy.error.tracebacks import traceback_text
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
        trace = values.get("exception")
        # repr: a text from the database must not look like another line.
        shown = "".join(
            f" {name}={value!r}"
            for name, value in values.items()
            if value is not None and name != "exception"
        )
        below = f"\n{_text(trace)}" if isinstance(trace, dict) else ""
        self._logger.log(level, template(text), f"{shown}{below}", extra={"outbox": values})


def template(text: str) -> str:
    """The ``msg`` of a record: what sorts records by it, as Sentry does, sorts by what happened."""
    return f"{text}%s"


def program_log(level: Level, starts: LogStarts) -> Log:
    """Lines to structlog if the program has configured it, else to ``logging``."""
    structlog: Any = sys.modules.get("structlog")
    if structlog is None or not structlog.is_configured():
        return Log(StandardLogger(logging.getLogger(NAME)), level, starts=starts)
    # The console's renderer takes text only, and nothing says what comes after another one.
    json = structlog.processors.JSONRenderer
    is_json = any(isinstance(each, json) for each in structlog.get_config()["processors"])
    return Log(structlog.get_logger(NAME), level, starts=starts, text_tracebacks=not is_json)


def _text(trace: dict[str, Any]) -> str:
    return traceback_text([trace, *trace.get("chain", ())])
