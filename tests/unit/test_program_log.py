"""Lines of a consumer inside a program: to its structlog, or to its logging."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import structlog

from sa_outbox.event.origin import Origin
from sa_outbox.logs import program_log
from sa_outbox.logs.program import NAME
from sa_outbox.observe import AttemptFailed, ConsumerStarted, DeadLettered
from sa_outbox.policy.error.tracebacks import Raised, Step
from sa_outbox.policy.failure import Failure

STARTED = ConsumerStarted("host:1:ab", ("billing",))
FAILED = AttemptFailed(
    "billing",
    UUID(int=7),
    "order.placed",
    12,
    2,
    Failure(
        attempt=2,
        code="card",
        error="shop.CardRefused",
        message="card 4111",
        traceback=(Raised("shop.CardRefused", "", (Step("shop/card.py", 1, "charge", "raise"),)),),
    ),
    1.5,
    Origin("acme", '{"request_id": "r-1"}'),
)
SHOWN = '  File "shop/card.py", line 1, in charge\n    raise\nshop.CardRefused'
OBJECT = FAILED.failure.traceback[0].as_json()


@pytest.fixture
def unconfigured() -> Iterator[None]:
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


@pytest.fixture
def configured() -> Iterator[list[dict[str, Any]]]:
    kept: list[dict[str, Any]] = []

    def keep(_logger: Any, _method: str, values: Any) -> Any:
        kept.append(dict(values))
        raise structlog.DropEvent

    structlog.configure(processors=[structlog.contextvars.merge_contextvars, keep])
    yield kept
    structlog.reset_defaults()


@pytest.mark.usefixtures("unconfigured")
class TestLogging:
    def test_a_line_has_the_fields_in_its_text_and_in_its_record(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO, NAME):
            program_log("info", "debug")(STARTED)

        (record,) = caplog.records
        assert (record.name, record.levelname) == (NAME, "INFO")
        assert record.getMessage() == "started owner='host:1:ab' listeners=('billing',)"
        assert vars(record)["outbox"] == {"owner": "host:1:ab", "listeners": ("billing",)}

    def test_a_failed_attempt_has_its_traceback_below_and_not_its_text(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        program_log("info", "debug")(FAILED)

        text = caplog.records[0].getMessage()
        assert text.startswith("attempt failed listener='billing' event_id=")
        assert "tenant='acme' request_id='r-1'" in text
        assert text.endswith(f"\n{SHOWN}")
        assert vars(caplog.records[0])["outbox"]["exception"] == OBJECT
        assert "4111" not in text

    def test_records_of_one_kind_have_one_template_whatever_their_fields(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        log = program_log("info", "debug")
        log(FAILED)
        log(replace(FAILED, attempt=3, origin=Origin()))
        log(STARTED)

        templates = [record.msg for record in caplog.records if record.levelname == "WARNING"]
        assert templates == ["attempt failed%s", "attempt failed%s"]

    def test_what_the_program_does_not_log_is_not_put_together(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.CRITICAL, NAME):
            program_log("info", "debug")(FAILED)

        assert caplog.records == []

    def test_off_is_silent(self, caplog: pytest.LogCaptureFixture) -> None:
        log = program_log("off", "debug")
        log(FAILED)
        log(DeadLettered("billing", UUID(int=7), "order.placed", 12, 2, "attempts"))

        assert caplog.records == []
        assert (log.wants_settled, log.wants_starts) == (False, "none")


def test_a_configured_structlog_gets_the_lines(
    configured: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    program_log("info", "debug")(FAILED)

    (line,) = configured
    assert (line["event"], line["tenant"], line["request_id"]) == ("attempt failed", "acme", "r-1")
    assert line["exception"] == SHOWN
    assert caplog.records == []


def test_a_structlog_that_writes_json_gets_the_traceback_as_an_object() -> None:
    lines: list[str] = []
    structlog.configure(
        processors=[structlog.processors.JSONRenderer()],
        logger_factory=lambda *_: structlog.WriteLogger(Lines(lines)),  # type: ignore[arg-type]  # all of it that is used
    )
    try:
        program_log("info", "debug")(FAILED)
    finally:
        structlog.reset_defaults()

    assert json.loads(lines[0])["exception"] == OBJECT


class Lines:
    """A stream that keeps what is written."""

    def __init__(self, kept: list[str]) -> None:
        self.write = kept.append

    def flush(self) -> None: ...
