"""``check_event``: a function that refuses events, and ``NoSecrets``, which is one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox import Event, NoSecrets, Outbox, OutboxSession, event_type
from sa_outbox.errors import ConfigError, InvalidEvent, SecretFound

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----"
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2lnbmF0dXJl"
SECRETS: list[tuple[Any, str]] = [
    ({"password": "hunter2"}, "$.password"),
    ({"customer": {"apiKey": "abc"}}, "$.customer.apiKey"),
    ({"users": [{"name": "a"}, {"Access-Token": "abc"}]}, "$.users[1].Access-Token"),
    ({"tokens": "no", "refresh_token": ["abc"]}, "$.refresh_token[0]"),
    ({"note": f"use {TOKEN}"}, "$.note"),
    ({"note": "AKIAIOSFODNN7EXAMPLE"}, "$.note"),
    ({"blobs": "AccountName=shop;AccountKey=hunter2hunter2hunter2=="}, "$.blobs"),
    ({"url": "postgresql://shop:hunter2@db/shop"}, "$.url"),
    ({"header": "Bearer abcdefghijklmnop"}, "$.header"),
    ([KEY], "$[0]"),
    (KEY, "$"),
    ({"by_token": {TOKEN: {"password": "hunter2"}}}, "$.by_token"),
    ({"two\nlines": {"password": "hunter2"}}, r"$.two\nlines.password"),
    ({"a" * 300: {"password": "hunter2"}}, f"$.{'a' * 40}.password"),
]
HARMLESS: list[Any] = [
    None,
    7,
    "password",
    {"password": None},
    {"password": ""},
    {"password": "***"},
    {"token_count": "7", "tokens": 7, "secretary": "Ann", "has_password": True},
    {"url": "https://example.com/@ann?x=1", "mail": "ann@example.com"},
    {"keys": ["a", "b"], "key": "order-7"},
]


@event_type("secrets_test.signed_up")
@dataclass(frozen=True)
class SignedUp:
    name: str
    password: str


def session_of(check: Any) -> OutboxSession:
    return Outbox(check_event=check).sessionmaker()()


def pending(session: OutboxSession) -> int:
    outbox: Any = session.outbox
    return len(outbox.pending(session))


class TestChecks:
    def test_a_class_is_refused_at_once_and_not_at_every_event(self) -> None:
        with pytest.raises(ConfigError) as raised:
            Outbox(check_event=NoSecrets)  # type: ignore[arg-type]  # the subject

        assert str(raised.value) == (
            "check_event must be a function, not a class: write NoSecrets()"
        )

    def test_one_gets_each_event_and_what_it_raises_refuses_it(self) -> None:
        seen: list[tuple[str, Any]] = []

        def check(event: Event[Any]) -> None:
            seen.append((event.event_type, event.payload))
            if event.payload == "bad":
                raise LookupError("not this one")

        session = session_of(check)
        session.add_event("a.b", "good")
        with pytest.raises(LookupError, match="not this one"):
            session.add_event("a.c", "bad")

        assert seen == [("a.b", "good"), ("a.c", "bad")]
        assert pending(session) == 1

    @pytest.mark.parametrize("answer", [True, False, "fine"])
    def test_an_answer_is_no_decision_and_is_refused(self, answer: object) -> None:
        session = session_of(lambda _: answer)

        with pytest.raises(ConfigError, match="check_event returned"):
            session.add_event("a.b", {})
        assert not pending(session)

    def test_one_that_turns_out_to_be_async_is_refused_and_leaves_no_warning(self) -> None:
        async def check(event: Event[Any]) -> None: ...

        with pytest.raises(ConfigError, match="check_event returned coroutine"):
            session_of(partial(lambda name, event: check(event), "x")).add_event("a.b", {})
        with pytest.raises(ConfigError, match="not async"):
            Outbox(check_event=check)  # type: ignore[arg-type]  # that is the point

    def test_without_one_and_without_a_contract_nobody_asks(self) -> None:
        assert Outbox().admission is None

    def test_what_is_no_function_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="check_event"):
            Outbox(check_event="secrets")  # type: ignore[arg-type]  # that is the point

    def test_a_cron_s_event_is_checked_when_it_is_declared(self) -> None:
        outbox = Outbox(check_event=NoSecrets())

        with pytest.raises(SecretFound):
            outbox.cron("0 3 * * *", "a.b", {"token": "abc"}, time_zone="UTC")
        assert len(outbox.crons) == 0


class TestNoSecrets:
    @pytest.mark.parametrize(("payload", "path"), SECRETS, ids=[path for _, path in SECRETS])
    def test_what_looks_like_a_secret_is_refused_by_its_path(self, payload: Any, path: str) -> None:
        session = session_of(NoSecrets())

        with pytest.raises(SecretFound) as refused:
            session.add_event("a.b", payload)

        assert (refused.value.path, refused.value.field) == (path, "payload")
        assert isinstance(refused.value, InvalidEvent)
        for secret in ("hunter2", "abc", "MIIE", "eyJ", "AKIA"):
            assert secret not in str(refused.value)
        assert not pending(session)

    @pytest.mark.parametrize("payload", HARMLESS, ids=repr)
    def test_what_does_not_is_added(self, payload: Any) -> None:
        session_of(NoSecrets()).add_event("a.b", payload)

    def test_headers_and_objects_are_looked_through_too(self) -> None:
        session = session_of(NoSecrets())

        with pytest.raises(SecretFound, match=r"headers at \$\.api_key"):
            session.add_event("a.b", {}, headers={"api_key": "abc"})
        with pytest.raises(SecretFound, match=r"payload at \$\.password"):
            session.add_event(SignedUp("ann", "hunter2"))

    def test_a_field_can_be_allowed_by_its_name(self) -> None:
        session = session_of(NoSecrets(allow=("next_page_token",)))

        session.add_event("a.b", {"pages": [{"next_page_token": "abc"}]})
        with pytest.raises(SecretFound):
            session.add_event("a.b", {"token": "abc"})

    @pytest.mark.parametrize("allow", ["token", None, (7,)], ids=repr)
    def test_what_is_not_a_tuple_of_names_is_refused(self, allow: Any) -> None:
        with pytest.raises(ConfigError, match="allow"):
            NoSecrets(allow=allow)

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab 7", max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text("xy", min_size=1, max_size=3), inner, max_size=3)
            ),
            max_leaves=8,
        )
    )
    def test_one_secret_anywhere_is_found(self, payload: Any) -> None:
        check = NoSecrets()
        check(Event("a.b", payload))

        for wrapped in ([payload, {"secret": "abc"}], {"x": payload, "y": {"my_secret": "abc"}}):
            with pytest.raises(SecretFound):
                check(Event("a.b", wrapped))
