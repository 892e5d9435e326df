"""Signatures of webhooks: ours and those of the reference agree, and nothing else gets through."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.errors import ConfigError, InvalidWebhook
from sa_outbox.webhooks import new_secret, sign, verify

BODY = b'{"order":7,"to":"Zo\xc3\xab"}'
OLD, NEW, OTHER = new_secret(), new_secret(), new_secret()
NOW = datetime(2025, 6, 1, 12, 0, tzinfo=UTC)

keys = st.binary(min_size=24, max_size=64)
ids = st.text(
    st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="."), min_size=1
).filter(lambda text: len(text) <= 256)


def accepted_elsewhere(body: bytes, headers: Mapping[str, str], secret: str) -> bool:
    """By the reference implementation."""
    try:
        standardwebhooks.Webhook(secret).verify(body, dict(headers), json_parse=False)
    except standardwebhooks.WebhookVerificationError:
        return False
    return True


class TestWithTheReference:
    def test_it_accepts_ours(self) -> None:
        headers = sign(BODY, message_id="e-1", secrets=NEW)

        assert accepted_elsewhere(BODY, headers, NEW)
        assert not accepted_elsewhere(BODY, headers, OTHER)

    def test_ours_accepts_its(self) -> None:
        when = datetime.now(UTC)
        signature = standardwebhooks.Webhook(NEW).sign("e-1", when, BODY.decode())
        headers = {
            "Webhook-Id": "e-1",
            "Webhook-Timestamp": str(int(when.timestamp())),
            "Webhook-Signature": signature,
        }

        assert verify(BODY, headers, NEW).message_id == "e-1"

    def test_while_keys_are_changed_receivers_with_either_accept(self) -> None:
        headers = sign(BODY, message_id="e-1", secrets=[OLD, NEW])

        for secret in (OLD, NEW):
            assert accepted_elsewhere(BODY, headers, secret)
            assert verify(BODY, headers, secret).body == BODY
        with pytest.raises(InvalidWebhook):
            verify(BODY, headers, OTHER)

    def test_a_receiver_with_both_keys_accepts_either(self) -> None:
        for secret in (OLD, NEW):
            verify(BODY, sign(BODY, message_id="e-1", secrets=secret), [OLD, NEW])

    @pytest.mark.parametrize("place", range(len(BODY)))
    def test_both_refuse_a_changed_byte(self, place: int) -> None:
        headers = sign(BODY, message_id="e-1", secrets=NEW)
        changed = bytearray(BODY)
        changed[place] = ord("x") if changed[place] != ord("x") else ord("y")
        text = bytes(changed).decode(errors="replace").encode()

        assert not accepted_elsewhere(text, headers, NEW)
        with pytest.raises(InvalidWebhook, match="no signature matches"):
            verify(bytes(changed), headers, NEW)

    @pytest.mark.parametrize("minutes", [-6, 6])
    def test_both_refuse_another_time(self, minutes: int) -> None:
        when = datetime.now(UTC) + timedelta(minutes=minutes)
        headers = sign(BODY, message_id="e-1", secrets=NEW, timestamp=when)

        assert not accepted_elsewhere(BODY, headers, NEW)
        with pytest.raises(InvalidWebhook, match="too old, or in the future"):
            verify(BODY, headers, NEW)

    @pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
    def test_both_need_each_header(self, name: str) -> None:
        headers = sign(BODY, message_id="e-1", secrets=NEW)
        del headers[name]

        assert not accepted_elsewhere(BODY, headers, NEW)
        with pytest.raises(InvalidWebhook, match=f"no header {name}"):
            verify(BODY, headers, NEW)


class TestVerify:
    @given(body=st.binary(), message_id=ids, key=keys, others=st.lists(keys, max_size=3))
    def test_what_was_signed_is_accepted(
        self, body: bytes, message_id: str, key: bytes, others: list[bytes]
    ) -> None:
        headers = sign(body, message_id=message_id, secrets=[*others, key], timestamp=NOW)

        found = verify(body, headers, key, now=NOW)

        assert (found.message_id, found.timestamp, found.body) == (message_id, NOW, body)

    @given(body=st.binary(), other=st.binary(), key=keys)
    def test_another_body_is_not(self, body: bytes, other: bytes, key: bytes) -> None:
        headers = sign(body, message_id="e-1", secrets=key, timestamp=NOW)

        if other != body:
            with pytest.raises(InvalidWebhook):
                verify(other, headers, key, now=NOW)

    @given(
        headers=st.dictionaries(
            st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature", "Webhook-ID"]),
            st.one_of(
                st.text(),
                st.none(),
                st.binary(),
                st.integers().map(str),
                st.just("v1," + base64.b64encode(b"0" * 32).decode()),
                st.lists(st.sampled_from(["v1,", "v1", "v1a,x", "", "é,é"])).map(" ".join),
            ),
        )
    )
    def test_whatever_the_headers_are_it_is_refused_with_one_error(
        self, headers: dict[str, Any]
    ) -> None:
        given = {"webhook-id": "e-1", "webhook-timestamp": str(int(NOW.timestamp())), **headers}

        for each in (headers, given):
            with pytest.raises(InvalidWebhook):
                verify(BODY, each, NEW, now=NOW)

    @pytest.mark.parametrize(
        "timestamp",
        ["", "-1", "+1", "1e9", "1.5", "nan", "٣", " 1", "1\n", "9" * 12, "9" * 5000],
    )
    def test_a_timestamp_is_digits(self, timestamp: str) -> None:
        headers = sign(BODY, message_id="e-1", secrets=NEW) | {"webhook-timestamp": timestamp}

        with pytest.raises(InvalidWebhook):
            verify(BODY, headers, NEW)

    def test_what_was_signed_can_be_read_in_one_way(self) -> None:
        """With a dot in an id, ``a.1.2.3`` would be two messages with one signature."""
        seconds = str(int(NOW.timestamp()))
        body = f"{seconds}.5".encode()
        headers = sign(body, message_id="a", secrets=NEW, timestamp=NOW)
        moved = headers | {"webhook-id": f"a.{seconds}"}

        with pytest.raises(InvalidWebhook):
            verify(b"5", moved, NEW, now=NOW)
        with pytest.raises(ConfigError):
            sign(body, message_id=f"a.{seconds}", secrets=NEW)

    def test_a_header_that_came_twice_is_refused(self) -> None:
        headers = sign(BODY, message_id="e-1", secrets=NEW)

        with pytest.raises(InvalidWebhook, match="webhook-id"):
            verify(BODY, {**headers, "Webhook-Id": "e-2"}, NEW)

    def test_signatures_of_other_versions_are_left_out(self) -> None:
        headers = sign(BODY, message_id="e-1", secrets=NEW)
        headers["webhook-signature"] = f"v1a,abc v2,x {headers['webhook-signature']}"

        assert verify(BODY, headers, NEW).body == BODY

    def test_a_flood_of_signatures_is_refused(self) -> None:
        headers = sign(BODY, message_id="e-1", secrets=NEW)
        headers["webhook-signature"] = " ".join(["v1,x"] * 21 + [headers["webhook-signature"]])

        with pytest.raises(InvalidWebhook, match="22 signatures"):
            verify(BODY, headers, NEW)

    def test_the_tolerance_can_be_chosen(self) -> None:
        headers = sign(BODY, message_id="e-1", secrets=NEW, timestamp=NOW)
        later = NOW + timedelta(hours=1)

        assert verify(BODY, headers, NEW, now=later, tolerance=timedelta(hours=1)).body == BODY
        with pytest.raises(InvalidWebhook):
            verify(BODY, headers, NEW, now=later, tolerance=timedelta(minutes=59))

    def test_the_payload_is_decoded_on_request(self) -> None:
        found = verify(BODY, sign(BODY, message_id="e-1", secrets=NEW), NEW)

        assert found.json() == json.loads(BODY)
        assert "order" not in repr(found)

    @pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000])
    def test_a_signed_body_may_be_no_json(self, body: bytes) -> None:
        found = verify(body, sign(body, message_id="e-1", secrets=NEW), NEW)

        with pytest.raises(InvalidWebhook, match="not JSON"):
            found.json()

    def test_text_is_no_body(self) -> None:
        text: Any = BODY.decode()

        with pytest.raises(TypeError, match="the bytes that were received"):
            verify(text, sign(BODY, message_id="e-1", secrets=NEW), NEW)


class TestSecrets:
    def test_a_new_one_is_one(self) -> None:
        first, second = new_secret(), new_secret()

        assert first != second
        assert len(base64.b64decode(first.removeprefix("whsec_"))) == 32

    @pytest.mark.parametrize(
        "secret",
        ["", "whsec_", "whsec_äöü", "whsec_####", "whsec_YWJj", b"short", b"x" * 65, None, 7, []],
    )
    def test_what_is_none_is_refused_and_not_shown(self, secret: Any) -> None:
        for use in (
            lambda: sign(BODY, message_id="e-1", secrets=secret),
            lambda: verify(BODY, {}, secret),
            lambda: verify(BODY, {}, [NEW, secret]),
        ):
            with pytest.raises(ConfigError) as caught:
                use()
            assert "YWJj" not in str(caught.value)

    def test_padding_and_prefix_may_be_left_out(self) -> None:
        bare = NEW.removeprefix("whsec_").rstrip("=")

        assert verify(BODY, sign(BODY, message_id="e-1", secrets=bare), NEW).body == BODY


def test_verifying_needs_no_http_library() -> None:
    program = (
        "import sys, sa_outbox.webhooks\n"
        "print(*{'anyio', 'httpx2', 'httpcore2', 'cryptography'} & set(sys.modules))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == []
