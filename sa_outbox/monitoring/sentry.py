"""Sentry: an event for each dead letter, grouped into one issue for each error.

The extra ``sa_outbox[sentry]`` is its SDK; ``sentry_sdk.init`` is up to the program. An event is
built from what is stored of the error, not from the error itself: the SDK would add the values of
local variables, payloads among them. No event holds a payload, a key or an error's text.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from sa_outbox.errors import ConfigError
from sa_outbox.logs import LINES
from sa_outbox.logs.program import NAME, template
from sa_outbox.observe import AttemptFailed, ConsumerStarted, DeadLettered

if TYPE_CHECKING:
    from sa_outbox.observe import Observation
    from sa_outbox.policy.error.tracebacks import Raised, Step
    from sa_outbox.policy.failure import Failure

_LEVEL, _TEXT = LINES[DeadLettered]
_REMEMBERED: Final = 100
"""More than enough: the log's observer, which the consumer adds itself, comes right behind."""
_sent: Final = deque[tuple[str, str]](maxlen=_REMEMBERED)
"""Listener and event id of the last dead letters that were sent."""


class Sentry:
    """An observer that sends an event for each dead letter. Its fingerprint is the error's, so that
    Sentry makes one issue of all that fail alike, whichever listener they are of.

    ::

        consumer = Consumer(outbox, engine, observers=[Sentry()])

    With *attempts*, failed attempts that will be retried are sent too, as warnings. The last one is
    the dead letter. Raises :class:`ConfigError` when ``sentry-sdk`` is not installed.

    The line that a consumer logs about a dead letter is no event of Sentry's logging integration if
    this observer has sent one: it would be the second.
    """

    wants_settled = False

    def __init__(self, *, attempts: bool = False) -> None:
        self._sdk = _sdk()
        wanted = {ConsumerStarted, DeadLettered, *({AttemptFailed} if attempts else ())}
        self.wants_only: frozenset[type[Observation]] = frozenset(wanted)

    def __call__(self, observation: Observation) -> None:
        match observation:
            case ConsumerStarted():
                _leave_out_lines()
            case DeadLettered(attempts=attempts, failure=failure) if failure is not None:
                tags = {"attempt": str(attempts), "reason": observation.reason}
                self._send("error", observation, failure, tags)
                _sent.append((observation.listener, str(observation.event_id)))
            case AttemptFailed(attempt=attempt, retry_in=float()):
                self._send("warning", observation, observation.failure, {"attempt": str(attempt)})
            case _:
                pass

    def _send(
        self,
        level: str,
        seen: DeadLettered | AttemptFailed,
        failure: Failure,
        tags: dict[str, str],
    ) -> None:
        raised = [_shown(each) for each in reversed(failure.traceback)]
        of_event = {"event_id": str(seen.event_id), "position": seen.position}
        self._sdk.capture_event(
            {
                "level": level,
                "logger": NAME,
                "transaction": f"outbox.handle {seen.event_type}",
                "fingerprint": [failure.fingerprint],
                "exception": {"values": raised or [{"type": failure.error}]},
                "tags": {"listener": seen.listener, "event_type": seen.event_type, **tags},
                "contexts": {"outbox": {**of_event, "code": failure.code, **seen.origin.known}},
            }
        )


def _shown(raised: Raised) -> dict[str, Any]:
    """As Sentry takes one: outermost frame first, like ours."""
    return {
        "type": raised.error,
        "mechanism": {"type": "sa_outbox", "handled": True},
        "stacktrace": {"frames": [_frame(each) for each in raised.steps]},
    }


def _frame(step: Step) -> dict[str, Any]:
    module = step.file.removesuffix(".py").replace("/", ".")  # for ``in_app_include``
    found = {"filename": step.file, "module": module, "function": step.function}
    return {**found, "lineno": step.line, "context_line": step.code}


@cache
def _leave_out_lines() -> None:
    _sdk().get_global_scope().add_event_processor(_without_lines)


def _without_lines(event: Any, hint: dict[str, Any]) -> Any:
    """None for what a logger made of the line about a dead letter that was sent."""
    record = hint.get("log_record")
    if record is None or record.name != NAME or record.levelname.lower() != _LEVEL:
        return event
    is_known = any(_is_about(record, *each) for each in tuple(_sent))
    return None if is_known else event


def _is_about(record: Any, listener: str, event_id: str) -> bool:
    """Whether *record* is the line about this dead letter, by us or by a program's structlog: that
    hands over the fields, or one text with all of them."""
    given = vars(record)
    for fields in (given.get("outbox"), record.msg, given):
        if isinstance(fields, dict) and "event_id" in fields:
            is_line = fields.get("event", record.msg) in (_TEXT, template(_TEXT))
            return is_line and (fields.get("listener"), fields["event_id"]) == (listener, event_id)
    return all(each in str(record.msg) for each in (_TEXT, listener, event_id))


def _sdk() -> Any:
    try:
        return import_module("sentry_sdk")
    except ImportError as error:
        raise ConfigError("this needs Sentry's SDK: pip install 'sa_outbox[sentry]'") from error
