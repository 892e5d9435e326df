"""Where the lines of ``python -m sa_outbox.consume`` go, and what they look like.

This touches neither structlog's configuration nor any other logger.
"""

from __future__ import annotations

import logging
import os
import re
from asyncio import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import structlog
from structlog.contextvars import merge_contextvars

from ..logs import Log, program_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from ..logs import Level
    from ..settings import LogStarts

Format: TypeAlias = Literal["auto", "console", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)

_FIRST = ("timestamp", "level", "event")
_OF_LINES = {"stack", "exception"}
"""Fields that the console shows on separate lines."""
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def make_log(
    form: Format | None, level: Level, stream: TextIO | None, starts: LogStarts = "debug"
) -> Log:
    """Write lines to *stream*; or, if no format is requested, to the structlog of a program that
    has configured it, where our level applies before theirs."""
    if form is None and structlog.is_configured():
        return program_log(level, starts)
    on_terminal = _is_terminal(stream)
    console = form == "console" or (form != "json" and on_terminal)
    logger = structlog.wrap_logger(
        structlog.WriteLogger(Unfailing(stream)),  # type: ignore[arg-type]  # all of it that is used
        processors=[structlog.processors.add_log_level, *_rendered(stream, console=console)],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        context_class=dict,
        cache_logger_on_first_use=False,
    ).bind()
    messages = console and on_terminal
    return Log(logger, level, starts=starts, messages=messages, text_tracebacks=console)


def take_standard_logging(form: Format | None, stream: TextIO | None) -> None:
    """Give the program's ``logging`` output and warnings a handler in the same format, unless it
    has one."""
    root = logging.getLogger()
    if root.handlers or stream is None:
        return
    console = form == "console" or (form != "json" and _is_terminal(stream))
    handler = logging.StreamHandler(Unfailing(stream))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                merge_contextvars,  # which event a handler's line is about
                structlog.stdlib.add_log_level,
                structlog.stdlib.add_logger_name,
                structlog.processors.format_exc_info,
            ],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendered(stream, console=console),
            ],
        )
    )
    handler.addFilter(is_news)
    root.addHandler(handler)
    logging.captureWarnings(capture=True)


def is_news(record: logging.LogRecord) -> bool:
    """Whether a record is worth logging. When a handler is cancelled during a statement,
    SQLAlchemy's pool reports the connection it gives up as an error with a traceback; that is not
    news."""
    error = record.exc_info[1] if record.exc_info else None
    return not (record.name.startswith("sqlalchemy.pool") and isinstance(error, CancelledError))


class Unfailing:
    """A stream whose reader may go away: what can't be written is dropped.

    A log line is worth less than the delivery it reports.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        if self._stream is None:
            return
        with suppress(OSError, ValueError):  # ValueError: it is closed
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                self._stream.write(text.encode("ascii", "backslashreplace").decode())

    def flush(self) -> None:
        if self._stream is not None:
            with suppress(OSError, ValueError):
                self._stream.flush()


def _rendered(stream: TextIO | None, *, console: bool) -> list[Callable[..., Any]]:
    if not console:
        return [
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _ordered,
            structlog.processors.JSONRenderer(),
        ]
    colors = _is_terminal(stream) and not os.environ.get("NO_COLOR")
    renderer = structlog.dev.ConsoleRenderer(
        colors=colors,
        sort_keys=False,
        # The default shows the values of variables, payloads included, if rich is installed.
        exception_formatter=structlog.dev.plain_traceback,
    )
    return [structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False), _escaped, renderer]


def _ordered(_logger: object, _method: str, values: dict[str, Any]) -> dict[str, Any]:
    """For people who read JSON: what and when before the details."""
    return {name: values[name] for name in _FIRST if name in values} | values


def _escaped(_logger: object, _method: str, values: dict[str, Any]) -> dict[str, Any]:
    """The console prints text without spaces verbatim, including escape sequences."""
    for name, value in values.items():
        if isinstance(value, str):
            values[name] = _escape(value, keep="\n" if name in _OF_LINES else "")
    return values


def _escape(text: str, *, keep: str) -> str:
    def shown(found: re.Match[str]) -> str:
        character = found.group()
        return character if character in keep else repr(character)[1:-1]

    return _UNPRINTABLE.sub(shown, text)


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it is closed
        return False
