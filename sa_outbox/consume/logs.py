"""Observations as structlog lines.

What a line may contain: never a payload, a key, a header, or a URL with its password. An error's
text often quotes its subject, so it is written only where a developer looks: in console format on a
terminal. Elsewhere an error is its class and its code; the text of a handler's error is stored with
its delivery, in ``outbox_deliveries`` and ``outbox_dead_letters``.

This touches neither structlog's configuration nor any other logger.
"""

from __future__ import annotations

import logging
import os
import re
import traceback
from asyncio import CancelledError
from contextlib import suppress
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args
from uuid import UUID

import structlog

from .. import observe
from ..observe import AttemptFailed, DatabaseAway, DatabaseBack, LeaseClaimed, LeaseDropped

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from ..observe import Observation

Format: TypeAlias = Literal["auto", "console", "json"]
Level: TypeAlias = Literal["debug", "info", "warning", "error"]
FORMATS: tuple[Format, ...] = get_args(Format)
LEVELS: tuple[Level, ...] = get_args(Level)

LINES: dict[type[Observation], tuple[Level, str]] = {
    observe.ConsumerStarted: ("info", "started"),
    observe.ConsumerStopping: ("info", "stopping"),
    observe.ConsumerStopped: ("info", "stopped"),
    observe.ListenerRegistered: ("info", "listener registered"),
    observe.ListenerChanged: ("info", "listener changed"),
    observe.ListenerOrphaned: ("warning", "listener orphaned"),
    observe.CopyFound: ("warning", "database is a copy"),
    observe.CopyAdopted: ("info", "copy adopted"),
    observe.PartitionsDiffer: ("warning", "partitions differ"),
    observe.LeaseClaimed: ("info", "lease claimed"),
    observe.RangeTaken: ("debug", "range taken"),
    observe.LeaseReleased: ("info", "lease released"),
    observe.LeaseDropped: ("warning", "lease dropped"),
    observe.CommitsLost: ("error", "the database has lost commits"),
    observe.LeasesKept: ("debug", "leases kept"),
    observe.Notified: ("debug", "notified"),
    observe.Woken: ("debug", "woken"),
    observe.HorizonRead: ("debug", "horizon read"),
    observe.HorizonHeld: ("warning", "horizon held"),
    observe.IdsNotDrawn: ("error", "ids not drawn"),
    observe.BatchRead: ("debug", "batch read"),
    observe.AttemptFailed: ("warning", "attempt failed"),
    observe.DeliverySettled: ("debug", "settled"),
    observe.BatchSettled: ("debug", "batch settled"),
    observe.EventsAdded: ("debug", "events added"),
    observe.DeadLettered: ("error", "dead letter"),
    observe.BacklogMeasured: ("debug", "backlog measured"),
    observe.CaughtUp: ("debug", "caught up"),
    observe.SuspectAttempted: ("warning", "suspect attempted"),
    observe.Ticked: ("info", "ticked"),
    observe.PartitionMade: ("info", "partition made"),
    observe.PartitionDropped: ("info", "partition dropped"),
    observe.CatchAllEmptied: ("warning", "catch-all emptied"),
    observe.RetentionHeld: ("warning", "retention held"),
    observe.RetentionWaits: ("warning", "retention waits"),
    observe.RetentionRefused: ("warning", "retention refused"),
    observe.RowsPurged: ("info", "rows purged"),
    observe.EventsGone: ("warning", "events gone"),
    observe.DatabaseAway: ("warning", "database away"),
    observe.DatabaseBack: ("info", "database back"),
    observe.RelayAway: ("warning", "relay away"),
    observe.RelayBack: ("info", "relay back"),
    observe.EndpointLeftOut: ("error", "endpoint left out"),
    observe.EndpointDisabled: ("error", "endpoint disabled"),
    observe.Listening: ("info", "listening"),
    observe.LoopBlocked: ("warning", "loop blocked"),
    observe.HandlerIgnoredCancel: ("error", "handler ignored cancel"),
    observe.HandlerReturned: ("warning", "handler returned a value"),
}
"""Every observation with its level and text; its fields become the line's."""

MAX_FRAMES = 30
MAX_CAUSES = 10
_OF_LEASES = (LeaseClaimed, observe.RangeTaken, LeaseDropped)
_OF_RELAYS = (observe.RelayAway, observe.RelayBack)
_TRACKED = (DatabaseAway, DatabaseBack, observe.Listening, *_OF_LEASES, *_OF_RELAYS)
"""Observations that begin or end an outage: tracked whether they are logged or not."""
_FIRST = ("timestamp", "level", "event")
_OF_LINES = {"stack", "exception"}
"""Fields that the console shows on separate lines."""
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Log:
    """An observer that writes log lines. One lookup per batch, unless the level is debug."""

    def __init__(self, logger: Any, level: Level = "info", *, messages: bool = False) -> None:
        self._logger = logger
        self._messages = messages
        self._least = LEVELS.index(level)
        self.wants_batches = level != "debug"
        self._lines: dict[type[Observation], tuple[Callable[..., object] | None, str]] = {}
        for cls, (each, text) in LINES.items():
            if LEVELS.index(each) >= self._least:
                self._lines[cls] = (getattr(logger, each), text)
            elif cls in _TRACKED:
                self._lines[cls] = (None, text)
        self._names = {cls: [each.name for each in fields(cls)] for cls in LINES}
        self._away: dict[str, float] = {}

    def __call__(self, observation: Observation) -> None:
        line = self._lines.get(type(observation))
        if line is None:
            return
        write, text = line
        already_logged = isinstance(observation, _TRACKED) and self._is_repeated(observation)
        if write is not None and not already_logged:
            write(text, **self._fields(observation))

    def say(self, level: Level, text: str, **values: object) -> None:
        """Write a line that is not an observation, about what happens before and after the consumer
        runs."""
        if LEVELS.index(level) >= self._least:
            getattr(self._logger, level)(text, **values)

    def say_error(self, text: str, error: BaseException) -> None:
        """Log an unexpected error with its traceback."""
        name = type(error).__qualname__
        self.say("error", text, error=name, exception=trace(error, messages=self._messages))

    def _fields(self, observation: Observation) -> dict[str, object]:
        values = {
            name: _plain(getattr(observation, name)) for name in self._names[type(observation)]
        }
        if isinstance(observation, AttemptFailed):
            failure = observation.failure
            values |= {"error": failure.error, "code": failure.code}
            del values["failure"]
            if self._messages:
                values["message"] = failure.message
        return values

    def _is_repeated(self, observation: Observation) -> bool:
        """One line per outage and place. Its pauses grow; a shorter one starts a new outage."""
        away = self._away
        match observation:
            case DatabaseAway(where, _, pause):
                return self._is_known(where, pause)
            case observe.RelayAway(listener, _, pause):
                return self._is_known(f"relay {listener}", pause)
            case DatabaseBack(where):
                away.pop(where, None)
            case observe.RelayBack(listener):
                return away.pop(f"relay {listener}", None) is None
            case observe.Listening():
                away.pop("LISTEN", None)
            case LeaseClaimed(listener) | observe.RangeTaken(listener) | LeaseDropped(listener):
                away.pop(f"listener {listener}", None)
            case _:
                pass
        return False

    def _is_known(self, where: str, pause: float) -> bool:
        last = self._away.get(where)
        self._away[where] = pause
        return last is not None and last <= pause


def make_log(form: Format | None, level: Level, stream: TextIO | None) -> Log:
    """Write lines to *stream*; or, if no format is requested, to the structlog of a program that
    has configured it, where our level applies before theirs."""
    if form is None and structlog.is_configured():
        return Log(structlog.get_logger("sa_outbox.consumer"), level)
    on_terminal = _is_terminal(stream)
    console = form == "console" or (form != "json" and on_terminal)
    logger = structlog.wrap_logger(
        structlog.WriteLogger(Unfailing(stream)),  # type: ignore[arg-type]  # all of it that is used
        processors=[structlog.processors.add_log_level, *_rendered(stream, console=console)],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        context_class=dict,
        cache_logger_on_first_use=False,
    ).bind()
    return Log(logger, level, messages=console and on_terminal)


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


def trace(error: BaseException, *, messages: bool) -> str:
    """Where *error* came from; its text and that of its causes only with *messages*."""
    if messages:
        return "".join(traceback.format_exception(error)).rstrip()
    return "\n\n".join(_frames(each) for each in _chain(error))


def _frames(error: BaseException) -> str:
    lines = traceback.format_tb(error.__traceback__)[-MAX_FRAMES:]
    cls = type(error)
    return "".join([*lines, f"{cls.__module__}.{cls.__qualname__}"])


def _chain(error: BaseException) -> list[BaseException]:
    """The error, its causes, and the members of groups, earliest first."""
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting and len(found) < MAX_CAUSES:
        each = waiting.pop()
        if each is None or each in found:
            continue
        found.append(each)
        waiting.append(each.__cause__ or (None if each.__suppress_context__ else each.__context__))
        if isinstance(each, BaseExceptionGroup):
            waiting.extend(each.exceptions)
    return found[::-1]


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


def _plain(value: object) -> object:
    if isinstance(value, float):
        return round(value, 3)
    return str(value) if isinstance(value, (UUID, datetime)) else value


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it is closed
        return False
