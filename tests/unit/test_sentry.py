"""The events of Sentry that come from observations: without a consumer, by the SDK itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from sa_outbox.event.origin import Origin
from sa_outbox.monitoring.sentry import Sentry
from sa_outbox.observe import AttemptFailed, DeadLettered
from sa_outbox.policy.failure import Failure, describe

ID = UUID(int=7)
SECRET = "4111-1111-1111-1111"
CRASHED = Failure(4, "crash", "crash", f"3 times, with {SECRET}")
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
