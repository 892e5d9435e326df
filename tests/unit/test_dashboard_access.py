"""Who is let in, and what a dashboard refuses to be made of."""

from __future__ import annotations

import subprocess
import sys
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import pytest
from click.testing import CliRunner

from sa_outbox import Outbox
from sa_outbox.cli import main
from sa_outbox.dashboard import Dashboard, Visitor
from sa_outbox.dashboard.access import (
    GUESS_SECONDS,
    MAX_ADDRESSES,
    MAX_GUESSES,
    SESSION_SECONDS,
    Guesses,
    Keys,
    Session,
    bearer_of,
    is_token,
)
from sa_outbox.dashboard.server import is_loopback, open_socket
from sa_outbox.errors import ConfigError

TOKEN = "a-token-that-is-long-enough"
URL = "postgresql://nobody@127.0.0.1:1/nothing"


class TestKeys:
    def test_a_cookie_says_whose_session_it_is_until_it_ends(self) -> None:
        now = 1000.0
        keys = Keys(TOKEN, clock=lambda: now)
        session = keys.new_session("token", "Grace Höpper")
        cookie = keys.cookie_of(session)

        assert keys.session_of(cookie, "token") == session
        assert cookie.isascii()
        now += SESSION_SECONDS + 1
        assert keys.session_of(cookie, "token") is None

    def test_every_process_with_the_secret_understands_it_and_no_other(self) -> None:
        cookie = Keys(TOKEN).cookie_of(Keys(TOKEN).new_session("token", "x"))

        assert Keys(TOKEN).session_of(cookie, "token") is not None
        assert Keys(TOKEN + "!").session_of(cookie, "token") is None

    def test_a_session_for_forms_does_not_stand_for_the_token(self) -> None:
        keys = Keys(TOKEN)

        assert keys.session_of(keys.cookie_of(keys.new_session("forms")), "token") is None

    @pytest.mark.parametrize(
        "cookie", [None, "", ".", "a.b.c.d", "token.x.99999999999..0", "é.\udc80"]
    )
    def test_what_is_not_signed_is_nothing(self, cookie: str | None) -> None:
        assert Keys(TOKEN).session_of(cookie, "token") is None

    def test_a_changed_cookie_is_nothing(self) -> None:
        keys = Keys(TOKEN)
        cookie = keys.cookie_of(keys.new_session("token", "x"))
        digits = ascii_uppercase + ascii_lowercase + "0123456789-_"

        for at, each in enumerate(cookie):
            # The highest bit: of the last digit the lowest ones mean nothing.
            other = digits[digits.index(each) ^ 32] if each in digits else "A"
            assert keys.session_of(cookie[:at] + other + cookie[at + 1 :], "token") is None
        assert keys.session_of(cookie, "token") is not None

    def test_a_cookie_is_no_forms_token_and_is_not_made_by_one(self) -> None:
        keys, session = Keys(TOKEN), Session("forms", "1")
        visitor = Visitor("grace", "operator")
        said, _, signature = keys.cookie_of(session).rpartition(".")

        assert not keys.is_form_token(signature, session, visitor)
        assert keys.session_of(f"{said}.{keys.form_token(session, visitor)}", "forms") is None

    def test_a_forms_token_is_of_one_session_and_one_person(self) -> None:
        keys = Keys(TOKEN)
        session, grace = Session("forms", "1"), Visitor("grace", "operator")
        token = keys.form_token(session, grace)

        assert keys.is_form_token(token, session, grace)
        assert not keys.is_form_token(token, Session("forms", "2"), grace)
        assert not keys.is_form_token(token, session, Visitor("ada", "operator"))
        assert not keys.is_form_token("", session, grace)
        assert not keys.is_form_token("\udc80", session, grace)
        assert not keys.is_form_token("é", session, grace)
        assert Keys(TOKEN).is_form_token(token, session, grace)
        assert not Keys(TOKEN + "!").is_form_token(token, session, grace)

    def test_a_token_is_the_whole_token(self) -> None:
        assert is_token(TOKEN, TOKEN)
        assert not is_token(TOKEN[:-1], TOKEN)
        assert not is_token("\udc80", TOKEN)
        assert bearer_of(f"bearer {TOKEN}") == TOKEN
        assert bearer_of("Basic x") is None


class TestGuesses:
    def test_after_many_wrong_ones_an_address_waits_and_others_do_not(self) -> None:
        now = 1000.0
        guesses = Guesses(clock=lambda: now)
        for _ in range(MAX_GUESSES):
            assert guesses.wait("a") == 0
            guesses.was_wrong("a")

        assert 0 < guesses.wait("a") <= GUESS_SECONDS + 1
        assert guesses.wait("b") == 0
        now += GUESS_SECONDS + 1
        assert guesses.wait("a") == 0

    def test_addresses_are_not_remembered_without_end(self) -> None:
        guesses = Guesses(clock=lambda: 1000.0)
        for number in range(MAX_ADDRESSES + 10):
            guesses.was_wrong(str(number))

        assert len(guesses._wrong) <= MAX_ADDRESSES


class TestSettings:
    @pytest.mark.parametrize(
        ("options", "why"),
        [
            ({}, "who may see"),
            ({"token": TOKEN, "auth": lambda _: None, "secret": TOKEN}, "who may see"),
            ({"token": "short"}, "at least 16"),
            ({"auth": lambda _: None}, "needs secret"),
            ({"auth": lambda _: None, "secret": "short"}, "at least 16"),
            ({"allow_anonymous": True}, "allowed_hosts"),
            ({"token": TOKEN, "page_size": 0}, "page_size"),
            ({"token": TOKEN, "mask": "password"}, "mask"),
            ({"token": TOKEN, "trusted_origins": ["ops.example"]}, "origin"),
        ],
    )
    def test_a_dashboard_that_would_be_open_or_wrong_is_not_made(
        self, options: Any, why: str
    ) -> None:
        with pytest.raises(ConfigError, match=why):
            Dashboard(Outbox(), URL, **options)

    def test_a_database_that_is_none_is_refused_at_once(self) -> None:
        with pytest.raises(ConfigError, match="PostgreSQL"):
            Dashboard(Outbox(), "sqlite://", token=TOKEN)

    @pytest.mark.parametrize("wrong", [("", "viewer"), ("ada", "admin")])
    def test_a_visitor_has_a_name_and_a_role(self, wrong: Any) -> None:
        with pytest.raises(ConfigError, match="visitor"):
            Visitor(*wrong)

    @pytest.mark.parametrize("missing", ["starlette", "itsdangerous"])
    def test_without_the_extra_the_error_names_it(self, missing: str) -> None:
        program = (
            f"import sys; sys.modules[{missing!r}] = None\n"
            "try: from sa_outbox.dashboard import Dashboard\n"
            "except ValueError as error: print(error)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )

        assert 'pip install "sa_outbox[dashboard]"' in done.stdout


class TestCommand:
    def test_another_address_than_the_loopback_needs_a_token(self) -> None:
        done = CliRunner().invoke(main, ["dashboard", "--database-url", URL, "--host", "0.0.0.0"])

        assert done.exit_code == 2
        assert "SA_OUTBOX_DASHBOARD_TOKEN" in done.output

    def test_behind_a_proxy_it_needs_a_token(self) -> None:
        done = CliRunner().invoke(
            main, ["dashboard", "--database-url", URL, "--root-path", "/outbox"]
        )

        assert done.exit_code == 2
        assert "SA_OUTBOX_DASHBOARD_TOKEN" in done.output

    def test_a_port_that_is_taken_is_told_in_one_line(self) -> None:
        with open_socket("127.0.0.1", 0) as taken:
            port = str(taken.getsockname()[1])
            done = CliRunner().invoke(main, ["dashboard", "--database-url", URL, "--port", port])

        assert done.exit_code == 2
        assert "can't be bound" in done.output

    def test_the_loopback_is_known_by_its_numbers_and_its_name(self) -> None:
        hosts = ["127.0.0.1", "127.8.8.8", "::1", "localhost", "0.0.0.0", "10.0.0.1", "a.example"]

        assert [is_loopback(each) for each in hosts] == [True] * 4 + [False] * 3
