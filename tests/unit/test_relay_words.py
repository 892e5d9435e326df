"""Fields of an event in ``to=`` stay in their place of a subject or a routing key."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox import Event
from sa_outbox.relay.declaration import declare_relay
from sa_outbox.relay.faststream import FastStream
from sa_outbox.relay.nats import JetStream
from sa_outbox.relay.rabbitmq import RabbitMQ
from sa_outbox.relay.words import NATS, RABBITMQ, Words
from sa_outbox.settings import Settings

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]))


def destination(relay: Any, to: str, event: Event[Any]) -> str:
    listener = declare_relay(
        "r",
        relay,
        on="*",
        to=to,
        envelope=None,
        map=None,
        timeout=timedelta(seconds=30),
        options={},
        settings=Settings(),
    )
    assert listener.forwarding is not None
    message = listener.forwarding._make(event, 1)  # type: ignore[attr-defined]
    found: str = message.destination
    relay.check_destination(found)
    return found


def placed(**fields: Any) -> Event[Any]:
    return Event("order.placed", {}, **fields)


class TestWords:
    @pytest.mark.parametrize(("words", "reserved"), [(NATS, ".*>"), (RABBITMQ, ".*#/")])
    def test_a_field_is_one_word_and_no_two_look_alike(self, words: Words, reserved: str) -> None:
        @given(TEXT, TEXT)
        def check(one: str, other: str) -> None:
            assert not set(words.one(one)) & set(reserved + " \t\r\n\x00\u2028")
            assert (words.one(one) == words.one(other)) is (one == other)

        check()

    @pytest.mark.parametrize("name", ["order.placed", "a:b/c-d.e_f", "x"])
    def test_an_event_type_stays_as_it_is(self, name: str) -> None:
        assert NATS.some(name) == RABBITMQ.some(name) == name

    def test_one_that_no_producer_of_ours_writes_does_not_go_to_others(self) -> None:
        assert NATS.some("order.>") == "order.%3E"
        assert RABBITMQ.some("order.#") == "order.%23"

    def test_what_is_usual_stays_readable(self) -> None:
        for each in ("acme", "order-7", "Zoë", "a:b", "x_y", "0198c2e1-7b1f"):
            assert NATS.one(each) == RABBITMQ.one(each) == each


class TestRelays:
    @pytest.mark.parametrize(
        ("tenant", "wanted"),
        [
            ("acme", "shop.acme.order.placed"),
            ("acme.eu", "shop.acme%2Eeu.order.placed"),
            ("acme.>", "shop.acme%2E%3E.order.placed"),
            ("*", "shop.%2A.order.placed"),
            ("a b", "shop.a%20b.order.placed"),
            ("50%", "shop.50%25.order.placed"),
        ],
    )
    def test_nats(self, tenant: str, wanted: str) -> None:
        relay = JetStream("nats://127.0.0.1:4222")
        to = "shop.{tenant}.{event_type}"
        assert destination(relay, to, placed(tenant=tenant)) == wanted

    @pytest.mark.parametrize(
        ("key", "wanted"),
        [
            ("7", "7.order.placed"),
            ("7.other", "7%2Eother.order.placed"),
            ("#", "%23.order.placed"),
            ("a/b", "a%2Fb.order.placed"),
        ],
    )
    def test_rabbitmq(self, key: str, wanted: str) -> None:
        relay = RabbitMQ("amqp://127.0.0.1/", exchange="shop")
        assert destination(relay, "{key}.{event_type}", placed(key=key)) == wanted

    def test_an_exchange_is_not_left_by_a_field(self) -> None:
        relay = RabbitMQ("amqp://127.0.0.1/", exchange=None)
        to = "{tenant}/{event_type}"
        found = destination(relay, to, placed(tenant="amq.topic/x"))
        assert relay._split(found) == ("amq%2Etopic%2Fx", "order.placed")

    def test_the_name_of_a_queue_has_no_words(self) -> None:
        relay = RabbitMQ("amqp://127.0.0.1/")
        assert destination(relay, "orders-{tenant}", placed(tenant="acme.eu")) == "orders-acme.eu"

    def test_brokers_of_faststream(self) -> None:
        from faststream.nats import NatsBroker  # noqa: PLC0415 - slow to load
        from faststream.rabbit import RabbitBroker  # noqa: PLC0415 - slow to load

        event = placed(tenant="acme.*")
        nats = FastStream(NatsBroker("nats://127.0.0.1:4222"), stream="SHOP")
        assert destination(nats, "a.{tenant}", event) == "a.acme%2E%2A"
        queue = FastStream(RabbitBroker("amqp://127.0.0.1/"))
        assert destination(queue, "a.{tenant}", event) == "a.acme.*"
        topic = FastStream(RabbitBroker("amqp://127.0.0.1/"), exchange="shop")
        assert destination(topic, "a.{tenant}", event) == "a.acme%2E%2A"
