"""Observations as log lines.

What a line may contain: never a payload, a key, or a URL with its password; of the headers only
those of ``event/origin.py``. An error's text often quotes its subject, so it is written only where
a developer looks: in console format on a terminal. Elsewhere an error is its class, its code, its
fingerprint and where it was raised; the text of a handler's error is stored with its delivery, in
``outbox_deliveries`` and ``outbox_dead_letters``.
"""

from __future__ import annotations

import traceback
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from .. import observe
from ..observe import (
    AttemptFailed,
    DatabaseAway,
    DatabaseBack,
    DeadLettered,
    DeliverySettled,
    DeliveryStarted,
    LeaseClaimed,
    LeaseDropped,
    Place,
)
from ..policy.error.tracebacks import traceback_of, traceback_text
from .lines import LEVELS, LINES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..observe import Observation
    from ..policy.error.tracebacks import Traceback
    from ..policy.failure import Failure
    from ..settings import LogStarts
    from .lines import Level

OF_DELIVERIES = (
    *(DeliveryStarted, AttemptFailed, DeliverySettled, DeadLettered),
    *(observe.SuspectAttempted, observe.HandlerIgnoredCancel),
)
"""Observations of one delivery: each has its event's identity, the attempt and an ``origin``."""
_NO_FIELDS = ("origin", "failure", "is_queue")
"""What a line has in other words, and what only decides whether there is one."""
_OF_LEASES = (LeaseClaimed, observe.RangeTaken, LeaseDropped)
_OF_RELAYS = (observe.RelayAway, observe.RelayBack)
_TRACKED = (DatabaseAway, DatabaseBack, observe.Listening, *_OF_LEASES, *_OF_RELAYS)
"""Observations that begin or end an outage: tracked whether they are logged or not."""


class Log:
    """An observer that writes log lines. It costs an event nothing, unless the level is debug.

    *logger* is one of structlog's, or has methods like theirs: ``logger.info(text, **fields)``.
    *starts* is the level of ``delivery started`` in queues. With *messages*, an error's text is
    shown, which may quote data. A traceback is an object, or text with *text_tracebacks*: for a
    logger that prints lines.
    """

    def __init__(
        self,
        logger: Any,
        level: Level = "info",
        *,
        starts: LogStarts = "debug",
        messages: bool = False,
        text_tracebacks: bool = False,
    ) -> None:
        self._logger = logger
        self._messages = messages
        self._text_tracebacks = text_tracebacks
        self._least = LEVELS.index(level)
        self._lines: dict[type[Observation], tuple[Callable[..., object] | None, str]] = {}
        for cls, (each, text) in LINES.items():
            if self._is_written(each):
                self._lines[cls] = (getattr(logger, each), text)
            elif cls in _TRACKED:
                self._lines[cls] = (None, text)
        self._names = {
            cls: [each.name for each in fields(cls) if each.name not in _NO_FIELDS] for cls in LINES
        }
        self.wants_only: frozenset[type[Observation]] = frozenset({*self._lines, DeliveryStarted})
        self._away: dict[Place | str, float] = {}
        """Places without the database, and relays without their receiver, to the last pause."""
        self.wants_settled: bool = DeliverySettled in self._lines
        self.wants_starts: Literal["all", "queues", "none"] = "none"
        self._starts: Callable[..., object] | None = None
        if self._is_written("debug"):
            self.wants_starts = "all"
        elif starts == "info" and self._is_written("info"):
            self.wants_starts = "queues"
        if starts == "info" and self._is_written("info"):
            self._starts = logger.info

    def _is_written(self, level: Level) -> bool:
        return LEVELS.index(level) >= self._least

    def __call__(self, observation: Observation) -> None:
        if isinstance(observation, DeliveryStarted):
            self._started(observation)
            return
        line = self._lines.get(type(observation))
        if line is None:
            return
        write, text = line
        already_logged = isinstance(observation, _TRACKED) and self._is_repeated(observation)
        if write is not None and not already_logged:
            write(text, **self._fields(observation))

    def _started(self, observation: DeliveryStarted) -> None:
        write, text = self._lines.get(DeliveryStarted, (None, LINES[DeliveryStarted][1]))
        if observation.is_queue and self._starts is not None:
            write = self._starts
        if write is not None:
            write(text, **self._fields(observation))

    def say(self, level: Level, text: str, **values: object) -> None:
        """Write a line that is not an observation, about what happens before and after the consumer
        runs."""
        if self._is_written(level):
            getattr(self._logger, level)(text, **values)

    def say_error(self, text: str, error: BaseException, **values: object) -> None:
        """Log an unexpected error with its traceback."""
        values |= {"error": type(error).__qualname__, "exception": self._trace(error)}
        self.say("error", text, **values)

    def _trace(self, error: BaseException) -> str | dict[str, Any]:
        if self._messages:
            return "".join(traceback.format_exception(error)).rstrip()
        return self._shown(traceback_of(error))

    def _shown(self, found: Traceback) -> str | dict[str, Any]:
        raised = [each.as_json() for each in found]
        if self._text_tracebacks:
            return traceback_text(raised)
        return raised[0] | ({"chain": raised[1:]} if len(raised) > 1 else {})

    def _fields(self, observation: Observation) -> dict[str, object]:
        values = {
            name: _plain(getattr(observation, name)) for name in self._names[type(observation)]
        }
        if isinstance(observation, OF_DELIVERIES):
            values |= observation.origin.known
        if isinstance(observation, (AttemptFailed, DeadLettered)) and observation.failure:
            values |= _names_of(observation.failure)
        if isinstance(observation, AttemptFailed):
            if self._messages:
                values["message"] = observation.failure.message
            if observation.failure.traceback:
                values["exception"] = self._shown(observation.failure.traceback)
        return values

    def _is_repeated(self, observation: Observation) -> bool:
        """One line per outage and place. Its pauses grow; a shorter one starts a new outage."""
        away = self._away
        match observation:
            case DatabaseAway(where, _, pause):
                return self._is_known(where, pause)
            case observe.RelayAway(listener, _, pause):
                return self._is_known(listener, pause)
            case DatabaseBack(where):
                away.pop(where, None)
            case observe.RelayBack(listener):
                return away.pop(listener, None) is None
            case observe.Listening():
                away.pop(Place("LISTEN"), None)
            case LeaseClaimed(listener) | observe.RangeTaken(listener) | LeaseDropped(listener):
                away.pop(Place("listener", listener), None)
            case _:
                pass
        return False

    def _is_known(self, where: Place | str, pause: float) -> bool:
        last = self._away.get(where)
        self._away[where] = pause
        return last is not None and last <= pause


def _names_of(failure: Failure) -> dict[str, str]:
    return {"error": failure.error, "code": failure.code, "fingerprint": failure.fingerprint}


def _plain(value: object) -> object:
    if isinstance(value, float):
        return round(value, 3)
    return str(value) if isinstance(value, (UUID, datetime, Place)) else value
