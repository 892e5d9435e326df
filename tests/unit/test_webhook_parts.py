"""The pure parts of the webhook relay: the breaker, answers, headers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox import Event
from sa_outbox.errors import Undeliverable
from sa_outbox.relay import Message
from sa_outbox.relay.http.answers import MAX_SHOWN, BadAnswer, Reply, excerpt, judge
from sa_outbox.relay.http.breaker import (
    FAILURES,
    GONE_SECONDS,
    LONG_DOWN_SECONDS,
    Breaker,
)
from sa_outbox.relay.http.headers import headers_of

PROBE_SECONDS = 7.0


def down(at: float = 100.0) -> Breaker:
    breaker = Breaker(PROBE_SECONDS)
    for _ in range(FAILURES):
        assert breaker.ask(at) == "go"
        breaker.failed(at)
    return breaker


class TestBreaker:
    def test_a_few_failures_are_nothing(self) -> None:
        breaker = Breaker(PROBE_SECONDS)
        for _ in range(10):
            for _ in range(FAILURES - 1):
                breaker.failed(1.0)
                assert breaker.ask(1.0) == "go"
            breaker.succeeded()

    def test_after_several_in_a_row_it_rests_but_for_one_probe_at_a_time(self) -> None:
        breaker = down()

        assert breaker.ask(100.0 + PROBE_SECONDS - 0.1) == "rest"
        assert [breaker.ask(100.0 + PROBE_SECONDS) for _ in range(3)] == ["go", "rest", "rest"]
        assert breaker.ask(100.0 + 2 * PROBE_SECONDS) == "go", (
            "the first one was never heard of again"
        )

    def test_the_first_good_answer_ends_it(self) -> None:
        breaker = down()
        assert breaker.ask(100.0 + PROBE_SECONDS) == "go"

        breaker.succeeded()

        assert [breaker.ask(100.0 + PROBE_SECONDS) for _ in range(3)] == ["go"] * 3

    def test_a_failed_probe_prolongs_it(self) -> None:
        breaker = down()
        assert breaker.ask(100.0 + PROBE_SECONDS) == "go"

        breaker.failed(110.0 + PROBE_SECONDS)

        assert breaker.ask(109.0 + 2 * PROBE_SECONDS) == "rest"
        assert breaker.ask(110.0 + 2 * PROBE_SECONDS) == "go"

    def test_it_is_known_how_long_it_has_been_down(self) -> None:
        breaker = down()
        for number in range(1, 1000):
            breaker.failed(100.0 + number)

        assert not breaker.is_long_down(99.0 + LONG_DOWN_SECONDS)
        assert breaker.is_long_down(100.0 + LONG_DOWN_SECONDS)

    def test_one_that_asked_to_wait_is_not_down(self) -> None:
        breaker = Breaker(PROBE_SECONDS)
        breaker.asked_to_wait(100.0, 60.0)

        assert breaker.ask(159.0) == "rest"
        assert not breaker.is_long_down(10**9)
        assert [breaker.ask(160.0) for _ in range(3)] == ["go"] * 3

    def test_one_that_is_gone_is_asked_again_after_a_while(self) -> None:
        breaker = Breaker(PROBE_SECONDS)
        breaker.answered_gone(100.0)

        assert breaker.ask(99.0 + GONE_SECONDS) == "gone"
        assert breaker.is_gone(99.0 + GONE_SECONDS)
        assert breaker.ask(100.0 + GONE_SECONDS) == "go"

    def test_to_ask_whether_it_is_gone_takes_no_turn(self) -> None:
        breaker = down()

        assert not breaker.is_gone(100.0 + PROBE_SECONDS)
        assert breaker.ask(100.0 + PROBE_SECONDS) == "go"


class TestJudge:
    @pytest.mark.parametrize("retry_4xx", [False, True])
    def test_gone_is_retried_only_if_that_was_chosen(self, *, retry_4xx: bool) -> None:
        gone = Reply(410, {}, b"")

        final = judge(gone, retry_4xx=retry_4xx, retry_410=False)
        chosen = judge(gone, retry_4xx=retry_4xx, retry_410=True)

        assert isinstance(final, Undeliverable)
        assert isinstance(chosen, BadAnswer)

    def test_to_retry_gone_retries_no_other_4xx(self) -> None:
        assert isinstance(
            judge(Reply(404, {}, b""), retry_4xx=False, retry_410=True), Undeliverable
        )


class TestExcerpt:
    @given(st.binary(max_size=5000))
    def test_whatever_a_stranger_answers_can_be_stored_and_shown(self, body: bytes) -> None:
        text = excerpt(body)

        assert text.isprintable()
        assert len(text) <= MAX_SHOWN + 10
        text.encode()

    def test_what_is_readable_stays(self) -> None:
        assert excerpt("grüße\n\x1b[31m".encode() + b"\xff\x00") == ": grüße\\n\\x1b[31m\\xff\\x00"
        assert excerpt(b" \n") != ""
        assert excerpt(b"") == ""


def headers(**given: str) -> dict[str, str]:
    event: Event[Any] = Event("order.placed", {})
    named = {name.replace("__", "-"): value for name, value in given.items()}
    return headers_of(Message(event, "https://acme.example", b"{}", None, named))


class TestHeaders:
    @given(st.text(max_size=50))
    def test_no_value_gets_out_of_its_line(self, value: str) -> None:
        sent = headers(key=value)["key"]

        assert sent.isascii()
        assert not sent or sent.isprintable()
        assert " " not in sent

    def test_names_have_no_underscore(self) -> None:
        assert headers(event_id="1")["event-id"] == "1"

    @pytest.mark.parametrize("name", ["Host", "content_length", "Transfer-Encoding", "webhook-id"])
    def test_an_event_does_not_set_what_is_ours(self, name: str) -> None:
        assert "evil" not in headers(**{name: "evil"}).values()

    @pytest.mark.parametrize("name", ["", "a b", "a:b", "a\r\nb", "ä", "x" * 101])
    def test_what_is_no_name(self, name: str) -> None:
        with pytest.raises(Undeliverable) as caught:
            headers(**{name: "1"})
        assert caught.value.kind == "serialization"
