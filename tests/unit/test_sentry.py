"""The events of Sentry that come from observations: without a consumer, by the SDK itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
import sentry_sdk
import structlog
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.logging import EventHandler
from sentry_sdk.transport import Transport

from sa_outbox.event.origin import Origin
from sa_outbox.logs import Log
from sa_outbox.logs.program import NAME, StandardLogger
from sa_outbox.monitoring.sentry import Sentry
from sa_outbox.observe import AttemptFailed, ConsumerStarted, DeadLettered
from sa_outbox.policy.failure import Failure, describe

ID = UUID(int=7)
SECRET = "4111-1111-1111-1111"
CRASHED = Failure(4, "crash", "crash", f"3 times, with {SECRET}")
STARTED = ConsumerStarted("here", ("billing",))
DEAD = DeadLettered("billing", ID, "order.placed", 12, 3, "crashes", failure=CRASHED)


@pytest.fixture
def events() -> Iterator[list[Any]]:
    """What is sent meanwhile, by a client of this scope alone."""
    found: list[Any] = []

    class Recording(Transport):
        def capture_envelope(self, envelope: Envelope) -> None:
            found.append(envelope.get_event())

    with sentry_sdk.new_scope() as scope:
        scope.set_client(
            sentry_sdk.Client(
                "https://key@sentry.example/1",
                transport=Recording(),
                default_integrations=False,
                attach_stacktrace=True,
            )
        )
        yield found


def test_a_dead_letter_after_crashes_has_no_frames_and_an_issue_of_its_own(
    events: list[Any],
) -> None:
    Sentry()(DEAD)

    (event,) = events
    assert event["exception"]["values"] == [{"type": "crash"}]
    assert event["fingerprint"] == [CRASHED.fingerprint]
    assert event["tags"]["reason"] == "crashes"
    assert "threads" not in event
    assert SECRET not in str(event)


def test_the_error_comes_last_after_what_led_to_it(events: list[Any]) -> None:
    error = LookupError(SECRET)
    error.__cause__ = ValueError(SECRET)
    failure = describe(error, attempt=3)

    Sentry()(replace(DEAD, reason="attempts", failure=failure))

    (event,) = events
    types = [each["type"] for each in event["exception"]["values"]]
    assert types == ["ValueError", "LookupError"]
    assert SECRET not in str(event)


def test_where_the_event_comes_from_is_its_context_and_no_other_header(events: list[Any]) -> None:
    origin = Origin("acme", f'{{"request_id": "r-1", "card": "{SECRET}"}}')

    Sentry()(replace(DEAD, origin=origin))

    (event,) = events
    found = {"event_id": str(ID), "position": 12, "code": "crash"}
    assert event["contexts"]["outbox"] == {**found, "tenant": "acme", "request_id": "r-1"}


def test_the_attempt_that_makes_a_dead_letter_is_not_sent_beside_it(events: list[Any]) -> None:
    failure = describe(ValueError(SECRET), attempt=1)
    attempt = AttemptFailed("billing", ID, "order.placed", 12, 1, failure, 1.5)
    observer = Sentry(attempts=True)

    observer(attempt)
    observer(replace(attempt, attempt=2, retry_in=None))

    assert [(each["level"], each["tags"]["attempt"]) for each in events] == [("warning", "1")]


def test_attempts_are_not_even_given_to_an_observer_that_does_not_send_them() -> None:
    assert AttemptFailed not in Sentry().wants_only
    assert AttemptFailed in Sentry(attempts=True).wants_only


def in_logging() -> StandardLogger:
    return StandardLogger(logging.getLogger(NAME))


def structlog_with(*processors: Any) -> Callable[[], Any]:
    """A program's structlog that writes to ``logging``."""

    def made() -> Any:
        return structlog.wrap_logger(
            logging.getLogger(NAME),
            processors=processors,
            wrapper_class=structlog.stdlib.BoundLogger,
        )

    return made


logged_by = pytest.mark.parametrize(
    "made",
    [
        pytest.param(in_logging, id="logging"),
        pytest.param(structlog_with(structlog.processors.JSONRenderer()), id="json"),
        pytest.param(structlog_with(structlog.dev.ConsoleRenderer(colors=True)), id="console"),
        pytest.param(structlog_with(structlog.stdlib.render_to_log_kwargs), id="attributes"),
        pytest.param(
            structlog_with(structlog.stdlib.ProcessorFormatter.wrap_for_formatter), id="dict"
        ),
    ],
)


@pytest.fixture
def log(events: list[Any], made: Callable[[], Any]) -> Iterator[Log]:
    """What a program logs with, and Sentry gets."""
    to_sentry = EventHandler(logging.WARNING)
    logging.getLogger(NAME).addHandler(to_sentry)
    yield Log(made())
    logging.getLogger(NAME).removeHandler(to_sentry)


@logged_by
def test_the_line_about_a_dead_letter_that_was_sent_makes_no_second_event(
    log: Log, events: list[Any]
) -> None:
    dead = replace(DEAD, event_id=uuid4())
    for each in (STARTED, dead):
        for observer in (Sentry(), log):
            observer(each)

    (event,) = events
    assert event["tags"]["listener"] == "billing"


@logged_by
@pytest.mark.parametrize("other", [{"event_id": UUID(int=8)}, {"listener": "mailing"}])
def test_that_about_another_one_which_nobody_has_sent_arrives(
    log: Log, events: list[Any], other: Any
) -> None:
    """As that of a consumer without the observer, in the same program."""
    for each in (STARTED, DEAD):
        Sentry()(each)
    log(replace(DEAD, **other))

    assert [each.get("logger") for each in events] == [NAME, NAME]
    assert "logentry" in events[1]


@logged_by
def test_other_lines_that_speak_of_a_dead_letter_arrive(log: Log, events: list[Any]) -> None:
    for each in (STARTED, DEAD):
        Sentry()(each)
    log.say("error", "unexpected", error="no dead letter can be written")
    log.say("warning", "attempt failed", listener="billing", event_id=str(ID), code="dead letter")

    assert ["logentry" in each for each in events] == [False, True, True]
