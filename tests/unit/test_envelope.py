"""Events in messages: nothing is lost on the way, and a CloudEvent is one by its specification."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox import Event
from sa_outbox.errors import ConfigError
from sa_outbox.event.stored import load_to_forward
from sa_outbox.relay import CloudEvents, Message, Plain
from sa_outbox.relay.envelope import STRUCTURED, sequence
from sa_outbox.relay.message import JSON

REQUIRED = {"specversion", "id", "source", "type"}
NAME = re.compile(r"[a-z0-9]{1,20}")
"""The specification: lower-case letters and digits, and not more than 20 of them."""
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")

TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs", "Cn"]), min_size=1, max_size=20)
NAMES = st.sampled_from(
    ["version", "request_id", "correlation_id", "actor_id", "traceparent", "tracestate", "colour"]
)
PAYLOADS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
EVENTS = st.builds(
    Event,
    st.sampled_from(["order.placed", "shop.order.paid"]),
    PAYLOADS,
    key=st.none() | TEXT,
    tenant=st.none() | TEXT,
    headers=st.dictionaries(NAMES, TEXT | st.integers(1, 9), max_size=4),
    position=st.integers(1, 2**63 - 1),
    created_at=st.none() | st.datetimes(datetime(2020, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - hypothesis adds it
)


def wrapped(event: Event[Any], envelope: Plain | CloudEvents, prefix: str = "ce_") -> Message:
    return envelope.wrap(event, "orders", epoch=3, prefix=prefix)


def attributes_of(message: Message, prefix: str = "ce_") -> dict[str, str]:
    """As a receiver reads them, in either mode."""
    if message.content_type == STRUCTURED:
        document: dict[str, Any] = json.loads(message.body)
        document.pop("data")
        return document
    found = {
        name.removeprefix(prefix): value
        for name, value in message.headers.items()
        if name.startswith(prefix)
    }
    return found | {"datacontenttype": message.content_type}


class TestPlain:
    @given(EVENTS)
    def test_the_body_is_the_payload_and_headers_say_the_rest(self, event: Event[Any]) -> None:
        message = wrapped(event, Plain())

        assert json.loads(message.body) == event.payload
        assert (message.destination, message.key) == ("orders", event.key)
        assert message.content_type == JSON
        assert message.event is event
        headers = message.headers
        assert UUID(headers["event_id"]) == event.event_id
        assert headers["event_type"] == event.event_type
        assert headers["sequence"] == sequence(3, event.position)
        assert headers.get("key") == event.key
        assert headers.get("tenant") == event.tenant
        created = headers.get("created_at")
        assert event.created_at == (None if created is None else datetime.fromisoformat(created))
        for name, value in event.headers.items():
            assert headers[name] == str(value)

    @pytest.mark.parametrize("name", ["event_id", "event_type", "sequence"])
    def test_a_header_of_the_producer_does_not_replace_what_receivers_rely_on(
        self, name: str
    ) -> None:
        event: Event[Any] = Event("order.placed", {}, headers={name: "mine"}, position=1)

        assert wrapped(event, Plain()).headers[name] != "mine"


@pytest.mark.parametrize("mode", ["binary", "structured"])
class TestCloudEvents:
    @given(event=EVENTS)
    def test_attributes_keep_to_the_specification(
        self, mode: Literal["binary", "structured"], event: Event[Any]
    ) -> None:
        found = attributes_of(wrapped(event, CloudEvents("/shop", mode=mode)))

        assert found.keys() >= REQUIRED
        assert all(NAME.fullmatch(name) for name in found), found.keys()
        assert all(isinstance(value, str) and value for value in found.values())
        assert found["specversion"] == "1.0"
        assert UUID(found["id"]) == event.event_id
        assert found["source"] == "/shop"
        assert found["type"] == event.event_type
        assert found["datacontenttype"] == JSON
        assert found.get("subject") == found.get("partitionkey") == event.key
        assert found["sequence"] == sequence(3, event.position)
        if event.created_at is not None:
            assert RFC_3339.fullmatch(found["time"])
            assert datetime.fromisoformat(found["time"]) == event.created_at

    @given(event=EVENTS)
    def test_nothing_that_the_event_knows_is_lost(
        self, mode: Literal["binary", "structured"], event: Event[Any]
    ) -> None:
        message = wrapped(event, CloudEvents("/shop", mode=mode))

        found = attributes_of(message)
        document = json.loads(message.body)
        assert (document["data"] if mode == "structured" else document) == event.payload
        for name, value in event.headers.items():
            renamed = "schemaversion" if name == "version" else name.replace("_", "")
            assert found.get(renamed, message.headers.get(name)) == str(value)
        assert found.get("tenant") == event.tenant

    def test_the_names_of_a_protocol_have_its_prefix(
        self, mode: Literal["binary", "structured"]
    ) -> None:
        event: Event[Any] = Event(
            "order.placed", {}, headers={"traceparent": "00-ab", "colour": "red"}
        )
        message = wrapped(event, CloudEvents("/shop", mode=mode), prefix="cloudEvents:")

        assert message.headers["colour"] == "red", "the producer's own has no prefix"
        if mode == "binary":
            assert message.headers["cloudEvents:type"] == "order.placed"
            assert "cloudEvents:datacontenttype" not in message.headers
            assert message.headers["traceparent"] == "00-ab", "for those who know no CloudEvents"
        else:
            assert message.content_type == "application/cloudevents+json"
            assert not [name for name in message.headers if name.startswith("cloudEvents:")]


class TestSource:
    @pytest.mark.parametrize("source", ["/shop", "https://shop.example/a?b=1#c", "urn:shop:1"])
    def test_is_a_uri_reference(self, source: str) -> None:
        assert CloudEvents(source).source == source

    @pytest.mark.parametrize("source", ["", "two words", "a\nb", "ü", "<x>", "a" * 2001, None, 7])
    def test_what_is_none_is_refused(self, source: Any) -> None:
        with pytest.raises(ConfigError, match="URI reference"):
            CloudEvents(source)

    def test_so_is_a_mode_that_there_is_not(self) -> None:
        with pytest.raises(ConfigError, match="binary"):
            CloudEvents("/shop", mode="batched")  # type: ignore[arg-type]


@given(
    st.lists(
        st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), min_size=2, max_size=2
    )
)
def test_a_sequence_grows_as_text_as_it_does_as_a_number(places: list[tuple[int, int]]) -> None:
    first, second = places

    assert (sequence(*first) < sequence(*second)) == (first < second)


def test_an_event_without_a_place_comes_before_all() -> None:
    assert sequence(1, None) < sequence(1, 1)


class TestAsStored:
    """An event whose payload nobody has read."""

    TEXT = '{"price": 0.10000000000000000000000001, "n": 12345678901234567890123456789.50}'

    @pytest.fixture
    def unread(self) -> Event[Any]:
        row = (7, UUID(int=9), "test_envelope.stored", None, None, self.TEXT, "{}", None, 0, 0.0)
        return load_to_forward(row, None)

    @pytest.mark.parametrize("envelope", [Plain(), CloudEvents("/shop")])
    def test_no_digit_is_lost(self, unread: Event[Any], envelope: Plain | CloudEvents) -> None:
        assert wrapped(unread, envelope).body == self.TEXT.encode()

    def test_nor_in_a_document(self, unread: Event[Any]) -> None:
        body = wrapped(unread, CloudEvents("/shop", mode="structured")).body

        assert b'"data":' + self.TEXT.encode() in body
        json.loads(body)

    def test_what_a_map_has_taken_out_is_not_sent(self, unread: Event[Any]) -> None:
        del unread.payload["price"]

        assert b"price" not in wrapped(unread, Plain()).body
