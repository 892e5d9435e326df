"""Observations as lines of a log: one each, at its level, with nothing in it that is not theirs."""

from __future__ import annotations

import inspect
import io
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, TextIO
from uuid import UUID

import pytest
import structlog

from sa_outbox import observe
from sa_outbox.consume.logs import Unfailing, make_log, take_standard_logging
from sa_outbox.event.origin import Origin
from sa_outbox.logs import LINES, Log
from sa_outbox.observe import (
    AttemptFailed,
    DatabaseAway,
    DatabaseBack,
    DeadLettered,
    DeliverySettled,
    DeliveryStarted,
    LeaseClaimed,
    ListenerOrphaned,
    Listening,
    LoopBlocked,
    Observation,
    Place,
    RelayAway,
    Woken,
)
from sa_outbox.policy.failure import Failure, describe

ID = UUID(int=7)
SECRET = "4111-1111-1111-1111"
FAILURE = Failure(attempt=2, code="card", error="shop.CardRefused", message=f"card {SECRET}")
FAILED = AttemptFailed("billing", ID, "order.placed", 12, 2, FAILURE, 1.5)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Recording:
    """A logger that keeps its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, dict[str, Any]]] = []

    def __getattr__(self, level: str) -> Any:
        return lambda text, **values: self.calls.append((level, text, values))

    def texts(self) -> list[str]:
        return [text for _, text, _ in self.calls]


@pytest.fixture
def logger() -> Recording:
    return Recording()


@contextmanager
def bare_root() -> Iterator[logging.Logger]:
    """The root logger without handlers: pytest has its own there, but only while a test runs."""
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, []
    try:
        yield root
    finally:
        root.handlers = handlers
        logging.captureWarnings(capture=False)


def failing() -> NoReturn:
    raise KeyError(SECRET)


def json_lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


class TestLines:
    def test_every_observation_has_a_line(self) -> None:
        told = {
            each
            for each in vars(observe).values()
            if inspect.isclass(each) and issubclass(each, Observation) and each is not Observation
        }

        assert set(LINES) == told

    def test_no_two_have_the_same_text(self) -> None:
        texts = [text for _, text in LINES.values()]

        assert len(set(texts)) == len(texts)

    def test_a_line_has_the_fields_of_its_observation(self, logger: Recording) -> None:
        Log(logger)(LeaseClaimed("billing", 3, 12, after_crash=False, partition=1))

        fields = {"listener": "billing", "token": 3, "position": 12, "after_crash": False}
        fields["partition"] = 1
        assert logger.calls == [("info", "lease claimed", fields)]

    def test_a_failed_attempt_is_a_warning_with_class_and_code(self, logger: Recording) -> None:
        Log(logger)(FAILED)

        fields = {
            "listener": "billing",
            "event_id": str(ID),
            "event_type": "order.placed",
            "position": 12,
            "attempt": 2,
            "error": "shop.CardRefused",
            "code": "card",
            "fingerprint": FAILURE.fingerprint,
            "retry_in": 1.5,
        }
        assert logger.calls == [("warning", "attempt failed", fields)]

    def test_a_time_is_text(self) -> None:
        stream = io.StringIO()
        tick = datetime(2024, 1, 1, 3, tzinfo=UTC)

        make_log("json", "info", stream)(observe.Ticked("purge", tick, 0))

        (line,) = json_lines(stream)
        assert datetime.fromisoformat(line["tick"]) == tick
        assert (line["event"], line["name"], line["missed"]) == ("ticked", "purge", 0)

    def test_a_dead_letter_is_an_error(self, logger: Recording) -> None:
        Log(logger)(DeadLettered("billing", ID, "order.placed", 12, 5, "attempts"))

        (call,) = logger.calls
        assert call[:2] == ("error", "dead letter")

    def test_a_dead_letter_has_class_code_and_fingerprint_of_its_last_error_and_not_its_text(
        self, logger: Recording
    ) -> None:
        dead = DeadLettered("billing", ID, "order.placed", 12, 5, "attempts", Origin(), FAILURE)

        Log(logger, messages=True)(dead)

        ((_, _, fields),) = logger.calls
        assert (fields["error"], fields["code"]) == ("shop.CardRefused", "card")
        assert fields["fingerprint"] == FAILURE.fingerprint
        assert SECRET not in str(fields)

    def test_a_blocked_loop_is_shown_with_its_stack(self, logger: Recording) -> None:
        Log(logger)(LoopBlocked(5.00123, "File x, line 1"))

        fields = {"seconds": 5.001, "stack": "File x, line 1"}
        assert logger.calls == [("warning", "loop blocked", fields)]


class TestStarts:
    @staticmethod
    def start(*, is_queue: bool) -> DeliveryStarted:
        origin = Origin("acme", '{"request_id": "r-1", "correlation_id": "c-1"}')
        return DeliveryStarted("billing", ID, "order.placed", 12, 2, "host:1:ab", is_queue, origin)

    def test_a_start_names_the_event_the_attempt_and_the_consumer(self, logger: Recording) -> None:
        Log(logger, "debug")(self.start(is_queue=False))

        fields = {
            "listener": "billing",
            "event_id": str(ID),
            "event_type": "order.placed",
            "position": 12,
            "attempt": 2,
            "owner": "host:1:ab",
            "tenant": "acme",
            "request_id": "r-1",
            "correlation_id": "c-1",
        }
        assert logger.calls == [("debug", "delivery started", fields)]

    @pytest.mark.parametrize(
        ("level", "starts", "wants"),
        [
            ("info", "debug", "none"),
            ("info", "info", "queues"),
            ("warning", "info", "none"),
            ("debug", "debug", "all"),
            ("debug", "info", "all"),
        ],
    )
    def test_it_asks_only_for_those_it_writes(
        self, logger: Recording, level: Any, starts: Any, wants: str
    ) -> None:
        assert Log(logger, level, starts=starts).wants_starts == wants

    def test_those_of_queues_are_info_by_choice(self, logger: Recording) -> None:
        log = Log(logger, starts="info")
        log(self.start(is_queue=True))
        log(self.start(is_queue=False))

        assert [call[:2] for call in logger.calls] == [("info", "delivery started")]


class TestLevels:
    def test_what_happens_for_every_event_is_debug(self, logger: Recording) -> None:
        done = DeliverySettled("billing", ID, "order.placed", 12, 1, "done", 0.1)
        Log(logger)(done)
        Log(logger)(Woken("notify"))
        assert logger.calls == []

        Log(logger, "debug")(done)
        assert logger.texts() == ["settled"]

    def test_what_is_not_written_is_not_put_together(
        self, logger: Recording, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = Log(logger)
        monkeypatch.setattr(log, "_fields", lambda _: pytest.fail("put together"))
        log(DeliverySettled("billing", ID, "order.placed", 12, 1, "done", 0.1))

    def test_less_than_the_level_is_left_out(self, logger: Recording) -> None:
        log = Log(logger, "error")
        log(FAILED)
        log.say("warning", "no")
        log.say("error", "yes", why="so")

        assert logger.calls == [("error", "yes", {"why": "so"})]


class TestOutages:
    def test_an_outage_is_one_line_for_each_place_and_one_when_it_is_over(
        self, logger: Recording
    ) -> None:
        log = Log(logger)
        for pause in (0.1, 0.2, 5.0, 5.0):
            log(DatabaseAway(Place("horizon"), "OSError", pause))
            log(DatabaseAway(Place("leases"), "OSError", pause))
        log(DatabaseBack(Place("horizon")))

        assert logger.texts() == ["database away", "database away", "database back"]

    @pytest.mark.parametrize("level", ["info", "warning"])
    def test_the_next_outage_is_told_again(self, logger: Recording, level: Any) -> None:
        log = Log(logger, level)
        for _ in range(2):
            log(DatabaseAway(Place("horizon"), "OSError", 0.1))
            log(DatabaseBack(Place("horizon")))

        assert logger.texts().count("database away") == 2

    def test_listen_is_back_when_it_listens(self, logger: Recording) -> None:
        log = Log(logger)
        for _ in range(2):
            log(DatabaseAway(Place("LISTEN"), "OSError", 0.1))
            log(Listening("outbox"))

        assert logger.texts() == ["database away", "listening"] * 2

    def test_places_that_have_the_name_of_one_listener_have_outages_of_their_own(
        self, logger: Recording
    ) -> None:
        log = Log(logger)
        for pause in (0.1, 0.2):
            log(DatabaseAway(Place("handler", "billing"), "OSError", pause))
            log(DatabaseAway(Place("listener", "billing"), "OSError", pause))
            log(RelayAway("billing", "OSError", pause))
            log(LeaseClaimed("billing", 1, 0, after_crash=False))

        assert [(text, values.get("where")) for _, text, values in logger.calls] == [
            ("database away", "handler of billing"),
            ("database away", "listener billing"),
            ("relay away", None),
            ("lease claimed", None),
            ("database away", "listener billing"),
            ("lease claimed", None),
        ]

    def test_a_shorter_pause_begins_a_new_outage(self, logger: Recording) -> None:
        log = Log(logger)
        for pause in (0.1, 0.2, 0.1):
            log(DatabaseAway(Place("leases"), "OSError", pause))

        assert logger.texts() == ["database away"] * 2


class TestFormats:
    def test_without_a_terminal_it_is_json_without_the_texts_of_errors(self) -> None:
        stream = io.StringIO()
        make_log("auto", "info", stream)(FAILED)

        (line,) = json_lines(stream)
        assert list(line)[:3] == ["timestamp", "level", "event"]
        assert line["event"] == "attempt failed"
        assert line["code"] == "card"
        assert SECRET not in stream.getvalue()

    def test_on_a_terminal_it_is_text_with_them(self) -> None:
        stream = Terminal()
        make_log("auto", "info", stream)(FAILED)

        assert "attempt failed" in stream.getvalue()
        assert SECRET in stream.getvalue()

    def test_the_console_format_elsewhere_is_without_them(self) -> None:
        stream = io.StringIO()
        make_log("console", "info", stream)(FAILED)

        assert "attempt failed" in stream.getvalue()
        assert SECRET not in stream.getvalue()
        assert "\x1b" not in stream.getvalue()

    def test_json_on_a_terminal_is_without_them(self) -> None:
        stream = Terminal()
        make_log("json", "info", stream)(FAILED)

        assert SECRET not in json.dumps(json_lines(stream))

    @pytest.mark.parametrize(
        "text", ["a\nb", "a\x1b[2Jb", "a\rb c", "a\u2028b", "a\x9bb", "\ud800"]
    )
    @pytest.mark.parametrize("form", ["console", "json"])
    def test_no_text_can_forge_a_line_or_steer_a_terminal(self, form: Any, text: str) -> None:
        stream = io.StringIO()
        make_log(form, "info", stream)(ListenerOrphaned(text, 1))

        written = stream.getvalue()
        assert len(written.splitlines()) == 1
        assert written.endswith("\n")
        assert written.rstrip("\n").isprintable()

    def test_the_lines_of_a_stack_stay_lines_on_the_console(self) -> None:
        stream = io.StringIO()
        make_log("console", "info", stream)(LoopBlocked(5.0, "one\n  two \\n\x1b"))

        assert "one\n  two \\n\\x1b\n" in stream.getvalue()

    def test_a_program_that_configured_structlog_gets_the_lines(self) -> None:
        entries: list[Any] = []

        def keep(_logger: Any, _name: str, values: Any) -> Any:
            entries.append(dict(values))
            raise structlog.DropEvent

        structlog.configure(processors=[keep])
        try:
            ours = io.StringIO()
            make_log(None, "info", ours)(FAILED)
            assert [entry["event"] for entry in entries] == ["attempt failed"]
            assert SECRET not in repr(entries)
            assert ours.getvalue() == ""

            make_log("json", "info", ours)(FAILED)
            assert len(entries) == 1
            assert len(json_lines(ours)) == 1
        finally:
            structlog.reset_defaults()

    def test_structlog_is_not_configured_by_it(self) -> None:
        make_log(None, "info", io.StringIO())(FAILED)

        assert not structlog.is_configured()


class TestStreams:
    def test_a_reader_that_is_gone_is_no_error(self) -> None:
        class Piped(io.StringIO):
            is_broken = False

            def write(self, text: str) -> int:
                if self.is_broken:
                    raise BrokenPipeError
                return super().write(text)

            def flush(self) -> None:
                if self.is_broken:
                    raise BrokenPipeError

        stream = Piped()
        log = make_log("json", "info", stream)
        for stream.is_broken in (False, True, False):
            log(FAILED)

        assert len(json_lines(stream)) == 2, "all but the one that nobody could read"

    def test_a_closed_stream_is_no_error(self, tmp_path: Path) -> None:
        with (tmp_path / "log").open("w") as stream:
            log = make_log("auto", "info", stream)
            log(FAILED)
        log(FAILED)
        make_log("auto", "info", stream)(FAILED)

        assert len((tmp_path / "log").read_text().splitlines()) == 1

    def test_no_stream_is_no_error(self, capfd: pytest.CaptureFixture[str]) -> None:
        with bare_root() as root:
            make_log("auto", "info", None)(FAILED)
            take_standard_logging("auto", None)

            assert root.handlers == []
        assert capfd.readouterr() == ("", "")

    def test_what_the_stream_has_no_letters_for_is_spelled_out(self) -> None:
        raw = io.BytesIO()
        stream: TextIO = io.TextIOWrapper(raw, encoding="ascii")
        unfailing = Unfailing(stream)
        unfailing.write("größe\n")
        unfailing.flush()

        assert raw.getvalue() == b"gr\\xf6\\xdfe\n"


class TestErrors:
    def make(self) -> BaseException:
        try:
            try:
                failing()
            except KeyError as cause:
                raise ExceptionGroup(SECRET, [ValueError(SECRET)]) from cause
        except ExceptionGroup as group:
            return group

    def test_a_line_has_its_way_as_an_object_and_not_its_text(self) -> None:
        stream = io.StringIO()
        failure = describe(self.make(), attempt=2)
        make_log("json", "info", stream)(replace(FAILED, failure=failure))

        (line,) = json_lines(stream)
        assert line["fingerprint"] == failure.fingerprint
        shown = line["exception"]
        assert (shown["type"], shown["frames"][-1]["function"]) == (
            "ExceptionGroup",
            "TestErrors.make",
        )
        assert [(each["type"], each["relation"]) for each in shown["chain"]] == [
            ("ValueError", "member"),
            ("KeyError", "cause"),
        ]
        assert shown["chain"][1]["frames"][-1]["file"].endswith("test_logs.py")
        assert SECRET not in stream.getvalue()

    def test_on_the_console_it_is_lines(self) -> None:
        stream = io.StringIO()
        failure = describe(self.make(), attempt=2)
        make_log("console", "info", stream)(replace(FAILED, failure=failure))

        assert "in TestErrors.make\n" in stream.getvalue()
        assert stream.getvalue().endswith("\nExceptionGroup\n")
        assert SECRET not in stream.getvalue()

    def test_on_a_terminal_its_text_is_shown(self, logger: Recording) -> None:
        Log(logger, messages=True).say_error("unexpected", self.make())

        assert SECRET in logger.calls[0][2]["exception"]

    def test_it_is_a_line_of_the_log(self) -> None:
        stream = io.StringIO()
        make_log("json", "info", stream).say_error("unexpected", self.make())

        (line,) = json_lines(stream)
        assert line["error"] == "ExceptionGroup"
        assert line["exception"]["frames"][-1]["function"] == "TestErrors.make"


class TestStandardLogging:
    def test_what_others_log_gets_the_same_format(self) -> None:
        stream = io.StringIO()
        with bare_root():
            take_standard_logging("auto", stream)
            logging.getLogger("sa_outbox.notifier").warning("away: %s", "why")

        (line,) = json_lines(stream)
        assert line["event"] == "away: why"
        assert line["logger"] == "sa_outbox.notifier"
        assert line["level"] == "warning"

    def test_a_traceback_is_part_of_the_line(self) -> None:
        stream = io.StringIO()
        with bare_root():
            take_standard_logging("json", stream)
            try:
                failing()
            except KeyError:
                logging.getLogger("app").exception("failed")

        (line,) = json_lines(stream)
        assert "in failing\n" in line["exception"]

    def test_warnings_are_lines_too(self) -> None:
        stream = io.StringIO()
        with warnings.catch_warnings(), bare_root():
            warnings.simplefilter("always")
            take_standard_logging("console", stream)
            warnings.warn("old", stacklevel=1)

        assert "UserWarning: old" in stream.getvalue()

    def test_a_program_that_has_a_handler_keeps_it_alone(self) -> None:
        with bare_root() as root:
            own = logging.NullHandler()
            root.addHandler(own)
            take_standard_logging("json", io.StringIO())

            assert root.handlers == [own]
