"""The demo as far as it needs no database: counting, the display, the summary."""

from __future__ import annotations

import io
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from typing import Any
from uuid import uuid4

import anyio
import pytest
from rich.console import Console

from sa_outbox.demo import program
from sa_outbox.demo.counts import TITLES, Counts, Row, Snapshot
from sa_outbox.demo.display import frame
from sa_outbox.demo.listeners import DESCRIPTIONS, outbox
from sa_outbox.demo.shop import ORDER_PAID, ORDER_PLACED, Shop
from sa_outbox.demo.summary import DeadLetter, Facts, Summary
from sa_outbox.observe import AttemptFailed, CaughtUp, DeliverySettled, LeaseClaimed, Observation
from sa_outbox.policy.failure import Failure

LATE = Snapshot(
    seconds=3_600,
    orders=345_678,
    refused=115_226,
    written=691_356,
    written_per_second=192.4,
    handled_per_second=383.6,
    closing=False,
    rows=tuple(
        Row(
            listener=name,
            position=1_234_567,
            lag=12_345,
            handled=1_234_567,
            retries=123_456,
            dead_letters=dead_letters,
            state="128 to retry",
            failure="attempt 4 of 4, dead letter: [red]shard[/red] 4" if dead_letters else "",
        )
        for name, dead_letters in (("billing", 0), ("mailer", 0), ("search_index", 1))
    ),
)
"""After an hour, with numbers as wide as they get."""


def painted(snapshot: Snapshot, *, width: int = 80, encoding: str = "utf-8") -> list[str]:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding) as file:
        Console(file=file, width=width, color_system=None).print(frame(snapshot))
        file.flush()
        return raw.getvalue().decode(encoding).splitlines()


class TestDisplay:
    def test_a_frame_fits_into_a_small_terminal_with_every_number_whole(self) -> None:
        lines = painted(LATE)

        assert len(lines) <= 24
        assert max(len(line.rstrip()) for line in lines) <= 80
        (last,) = [line for line in lines if line.startswith(" search_index")]
        assert " ".join(last.split()) == (
            "search_index 1,234,567 12,345 1,234,567 123,456 1 128 to retry"
        )
        (titles,) = [line.split() for line in lines if "position" in line]
        assert titles == ["listener", "position", "lag", "handled", "retries", "dead", "state"]

    def test_it_says_what_it_shows_and_how_to_stop(self) -> None:
        text = "\n".join(painted(LATE))

        assert "Ctrl-C to stop" in text
        assert "written 192   handled 384" in text
        for listener, description in DESCRIPTIONS.items():
            assert f"{listener:14}{description}" in text

    def test_it_says_that_the_end_has_begun(self) -> None:
        text = "\n".join(painted(replace(LATE, closing=True)))

        assert "closed; the listeners finish" in text
        assert "Ctrl-C" not in text

    def test_the_text_of_an_error_is_no_markup(self) -> None:
        assert "dead letter: [red]shard[/red] 4" in "\n".join(painted(LATE))

    @pytest.mark.parametrize("width", [40, 80])
    def test_a_terminal_without_unicode_gets_plain_characters(self, width: int) -> None:
        assert painted(LATE, width=width, encoding="ascii")

    def test_a_line_stands_under_its_titles(self) -> None:
        assert len(LATE.line) == len(TITLES)
        assert " ".join(LATE.line.split()) == ("3600 345,678 115,226 691,356 3,703,701 370,368 1")


def settled(listener: str, position: int, outcome: Any) -> DeliverySettled:
    return DeliverySettled(listener, uuid4(), ORDER_PAID, position, 1, outcome, 0.0)


class TestCounts:
    def rows(self, *observations: Observation, orders: int = 10) -> dict[str, Row]:
        shop = Shop(outbox.async_sessionmaker())
        shop.written = Counter({ORDER_PLACED: orders, ORDER_PAID: orders})
        counts = Counts(shop, outbox.listeners)
        for name in DESCRIPTIONS:
            counts.observe(LeaseClaimed(name, 1, 0, after_crash=False))
        for each in observations:
            counts.observe(each)
        return {row.listener: row for row in counts.snapshot().rows}

    def test_there_are_three_listeners_and_each_is_described(self) -> None:
        assert list(self.rows()) == list(DESCRIPTIONS) == ["billing", "mailer", "search_index"]

    def test_lag_is_what_is_written_of_its_types_and_not_handled(self) -> None:
        rows = self.rows(settled("mailer", 2, "done"), settled("search_index", 2, "dead"))

        assert {name: row.lag for name, row in rows.items()} == {
            "billing": 10,
            "mailer": 9,
            "search_index": 19,
        }

    def test_a_listener_is_not_ahead_of_the_log(self) -> None:
        assert self.rows(settled("mailer", 2, "done"), orders=0)["mailer"].lag == 0

    def test_a_delivery_that_failed_waits_until_it_is_done_or_dead(self) -> None:
        retry = settled("mailer", 4, "retry")

        waiting = self.rows(retry, settled("mailer", 6, "retry"))["mailer"]
        assert (waiting.state, waiting.retries) == ("2 to retry", 2)
        done = self.rows(retry, settled("mailer", 4, "done"), orders=1)["mailer"]
        assert (done.state, done.handled, done.retries) == ("caught up", 1, 1)
        dead = self.rows(retry, settled("mailer", 4, "dead"))["mailer"]
        assert (dead.state, dead.handled, dead.dead_letters) == ("at work", 0, 1)

    def test_the_position_passes_events_of_other_types(self) -> None:
        rows = self.rows(settled("billing", 7, "done"), CaughtUp("billing", 9))

        assert rows["billing"].position == 9

    def test_the_last_failure_says_what_follows(self) -> None:
        failure = Failure(attempt=1, code="ValueError", error="ValueError", message="no")

        def failed(attempt: int, retry_in: float | None) -> AttemptFailed:
            return AttemptFailed(
                "search_index", uuid4(), ORDER_PLACED, 1, attempt, failure, retry_in
            )

        first = self.rows(failed(1, 0.2))["search_index"]
        assert first.failure == "attempt 1 of 4, again in 0.20 s: no"
        last = self.rows(failed(1, 0.2), failed(4, None))["search_index"]
        assert last.failure == "attempt 4 of 4, dead letter: no"


ERRORS = tuple({"attempt": n, "error": "ValueError", "message": f"shard {n}"} for n in range(1, 5))
LETTER = DeadLetter(listener="search_index", event_type=ORDER_PLACED, position=7, errors=ERRORS)
FACTS = Facts(
    orders=10,
    invoices=10,
    events=Counter({ORDER_PLACED: 10, ORDER_PAID: 10}),
    orders_without_event=0,
    events_without_order=0,
    orders_without_invoice=0,
    unsettled=0,
    positions={"billing": 26, "mailer": 26, "search_index": 26},
    dead_letters=(LETTER,),
)


def summary(handled: tuple[int, int, int] = (10, 10, 19), **facts: Any) -> Summary:
    rows = tuple(replace(row, handled=count) for row, count in zip(LATE.rows, handled, strict=True))
    counted = replace(LATE, orders=10, refused=3, rows=rows)
    return Summary(facts=replace(FACTS, **facts), counted=counted, nameless_orders=1)


class TestSummary:
    def test_what_adds_up_is_told_with_the_error_of_every_attempt(self) -> None:
        assert summary().problems == []
        told = summary().text
        assert "10 orders in the database, 3 were rolled back; 20 events, 10 invoices." in told
        assert "Dead letter of search_index: demo.order_placed at position 7" in told
        assert all(f"  attempt {n}  ValueError: shard {n}\n" in told for n in range(1, 5))
        assert told.endswith("It all adds up.")
        assert max(map(len, told.splitlines())) <= 80

    @pytest.mark.parametrize(
        ("wrong", "told"),
        [
            ({"orders": 11}, "11 orders in the database, but 10 invoices"),
            ({"invoices": 11}, "10 orders in the database, but 11 invoices"),
            (
                {"events": Counter({ORDER_PLACED: 9, ORDER_PAID: 10})},
                "10 orders in the database, but 9 events demo.order_placed",
            ),
            ({"orders_without_event": 1}, "1 orders without an event"),
            ({"events_without_order": 2}, "2 events without an order"),
            ({"orders_without_invoice": 1}, "1 orders without an invoice"),
            ({"unsettled": 1}, "1 deliveries still wait to be settled"),
            ({"handled": (10, 9, 19)}, "mailer had 10 events to handle and handled 9"),
            ({"handled": (10, 10, 20)}, "search_index had 19 events to handle and handled 20"),
            ({"dead_letters": ()}, "0 dead letters instead of 1"),
            (
                {"dead_letters": (replace(LETTER, errors=ERRORS[1:]),)},
                "the dead letter at position 7 has the errors of [2, 3, 4]",
            ),
        ],
    )
    def test_what_does_not_is_named(self, wrong: dict[str, Any], told: str) -> None:
        assert told in summary(**wrong).problems
        assert "It does NOT add up" in summary(**wrong).text
        assert told in summary(**wrong).text


class TestChoiceOfDisplay:
    @pytest.fixture(autouse=True)
    def _terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        monkeypatch.setenv("TERM", "xterm")

    def test_on_a_terminal_it_is_live(self) -> None:
        said: list[str] = []
        assert program._choose_display(said.append) is not None
        assert said == []

    def test_without_rich_it_says_how_to_get_it_and_goes_on(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(program, "find_spec", lambda _: None)
        said: list[str] = []
        assert program._choose_display(said.append) is None
        assert said == ['To see it live, install rich: pip install "sa_outbox[embedded]"']

    def test_a_terminal_that_knows_no_more_than_lines_gets_lines(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TERM", "dumb")
        assert program._choose_display(lambda _: None) is None

    def test_somewhere_else_it_is_lines_whatever_the_environment_says(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
        monkeypatch.setenv("FORCE_COLOR", "1")
        assert program._choose_display(lambda _: None) is None


def test_adding_events_loads_nothing_of_the_demo() -> None:
    source = "import sys, sa_outbox; print({'anyio', 'rich', 'sa_outbox.demo'} & set(sys.modules))"

    printed = subprocess.run([sys.executable, "-c", source], capture_output=True, check=True)

    assert printed.stdout == b"set()\n"


def test_the_error_of_a_task_is_raised_as_itself() -> None:
    async def fail() -> None:
        async with anyio.create_task_group() as outer, anyio.create_task_group() as inner:
            inner.start_soon(anyio.sleep_forever)
            outer.start_soon(break_the_pipe)

    async def break_the_pipe() -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError), program._one_error():
        anyio.run(fail)
