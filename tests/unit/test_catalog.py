"""The catalogue as a document: what a program declares, as AsyncAPI 3 and JSON Schema."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sa_outbox import Event, Outbox
from sa_outbox.catalog.contents import contents_of
from sa_outbox.catalog.document import as_text, described, schemas
from sa_outbox.errors import ConfigError
from sa_outbox.event.types import EventTypes
from sa_outbox.relay import CloudEvents, Message
from sa_outbox.relay.http import Webhook
from sa_outbox.relay.kafka import Kafka
from sa_outbox.relay.nats import JetStream
from sa_outbox.relay.rabbitmq import RabbitMQ
from sa_outbox.relay.redis import RedisStreams

OFFICIAL = Path(sys.prefix) / "asyncapi-specs" / "schemas" / "3.0.0-without-$id.json"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@dataclass
class Line:
    sku: str
    count: int = 1


@dataclass
class OrderPlaced:
    """An order."""

    order_id: int
    total: Decimal
    at: datetime
    lines: list[Line]


async def handle(event: Event) -> None:
    """Charge the card.

    Not twice.
    """


async def typed(event: Event[OrderPlaced]) -> None: ...


def chosen(event: Event) -> str | None:
    return event.tenant


def mapped(event: Event) -> Message | None:
    return None


def program() -> tuple[Outbox, EventTypes]:
    types = EventTypes()
    types.register("order.placed", version=2)(OrderPlaced)
    types.upcast("order.placed", since=1)(lambda payload: payload)
    outbox = Outbox()
    outbox.listener("billing", on="order.placed", where={"kind": "web"})(handle)
    outbox.listener("audit", on="*", order="total")(handle)
    outbox.listener("mail", on=["user.joined", "!order.*"])(handle)
    outbox.cron("0 3 * * *", "purge:all", {"days": 7}, time_zone="Europe/Berlin")
    kafka, rabbit = Kafka("broker.internal:9092"), RabbitMQ("amqp://me:hunter2@mq.internal/v")
    outbox.relay("kafka", kafka, on="order.*", to="orders")
    outbox.relay("events", kafka, on="*", to="t.{event_type}", envelope=CloudEvents("/shop"))
    outbox.relay("rabbit", rabbit, on="order.*", to="orders")
    exchange = RabbitMQ("amqp://me:hunter2@mq.internal/v", exchange="shop")
    whole = CloudEvents("/shop", mode="structured")
    outbox.relay("exchange", exchange, on="order.*", to="o.{key}", envelope=whole)
    outbox.relay("nats", JetStream("nats://n.internal:4222"), on="order.*", to="orders")
    outbox.relay("redis", RedisStreams("redis://r.internal:6379/0"), on="order.*", to=chosen)
    outbox.relay("mapped", kafka, on="order.*", map=mapped)
    hook = Webhook(secrets=SECRET)
    outbox.relay("hook", hook, on="order.*", to="https://acme.example/hooks?token=hunter2")
    return outbox, types


def document() -> Any:
    outbox, types = program()
    return described(contents_of(outbox, types), title=None, version="1.0.0")


def test_every_event_type_that_the_program_knows_is_a_message() -> None:
    found = document()

    assert {each["name"] for each in found["components"]["messages"].values()} == {
        "order.placed",
        "purge:all",
        "user.joined",
    }
    assert found["components"]["messages"]["order.placed"]["x-sa-outbox"] == {
        "version": 2,
        "upcasters": [1],
        "typed": True,
    }


def test_the_payload_of_a_type_that_is_only_a_name_is_open() -> None:
    schema = document()["components"]["schemas"]["user.joined"]

    jsonschema.validate({"anything": [1, None]}, schema)
    assert "type" not in schema


def test_a_class_has_the_schema_of_what_it_reads_with_its_parts_beside_it() -> None:
    parts = document()["components"]["schemas"]

    assert parts["order.placed"] == {
        "title": "OrderPlaced",
        "type": "object",
        "description": "An order.",
        "properties": {
            "order_id": {"type": "integer"},
            "total": {"type": "string", "format": "decimal"},
            "at": {"type": "string", "format": "date-time"},
            "lines": {
                "type": "array",
                "items": {"$ref": "#/components/schemas/order.placed--Line"},
            },
        },
        "required": ["at", "lines", "order_id", "total"],
    }
    assert parts["order.placed--Line"]["required"] == ["sku"]


def test_a_listener_receives_what_it_listens_to_and_no_more() -> None:
    operations = document()["operations"]

    def received(name: str) -> list[str]:
        return [each["$ref"].rpartition("/")[2] for each in operations[name]["messages"]]

    assert operations["listener.billing"]["action"] == "receive"
    assert received("listener.billing") == ["order.placed"]
    assert received("listener.audit") == ["order.placed", "purge..all", "user.joined"]
    assert received("listener.mail") == ["user.joined"]
    assert operations["listener.billing"]["summary"] == "Charge the card."
    assert operations["listener.billing"]["x-sa-outbox"]["where"] == {"kind": "web"}


def test_a_listener_says_which_class_it_makes_of_a_payload() -> None:
    outbox, types = Outbox(), EventTypes()
    types.register("catalog.typed")(OrderPlaced)
    outbox.listener("typed", on="catalog.*")(typed)
    exports = outbox.queue("exports")
    exports.on("catalog.typed")(typed)
    exports.on("catalog.plain")(handle)

    found = described(contents_of(outbox, types), title=None, version="1")["operations"]

    for name in ("typed", "exports"):
        assert found[f"listener.{name}"]["x-sa-outbox"]["classes"]["catalog.typed"] == "OrderPlaced"
    assert "catalog.plain" not in found["listener.exports"]["x-sa-outbox"]["classes"]


def test_what_the_program_adds_is_sent_by_the_type_and_by_the_cron() -> None:
    operations = document()["operations"]

    assert operations["add.order.placed"]["action"] == "send"
    assert "add.user.joined" not in operations
    assert operations["cron.purge:all"]["x-sa-outbox"] == {
        "cron": "purge:all",
        "expression": "0 3 * * *",
        "time_zone": "Europe/Berlin",
        "missed": "one",
    }


@pytest.mark.parametrize(
    ("relay", "address", "bindings"),
    [
        ("kafka", "orders", {"kafka": {"topic": "orders", "bindingVersion": "0.5.0"}}),
        ("events", "t.{event_type}", {"kafka": {}}),
        (
            "rabbit",
            "orders",
            {"amqp": {"is": "queue", "queue": {"name": "orders"}, "bindingVersion": "0.3.0"}},
        ),
        (
            "exchange",
            "o.{key}",
            {
                "amqp": {
                    "is": "routingKey",
                    "exchange": {"name": "shop"},
                    "bindingVersion": "0.3.0",
                }
            },
        ),
        ("nats", "orders", {"nats": {}}),
        ("redis", None, {"redis": {}}),
        ("mapped", None, {"kafka": {}}),
        ("hook", None, {"http": {}}),
    ],
)
def test_a_relay_is_a_channel_with_the_bindings_of_its_protocol(
    relay: str, address: str | None, bindings: object
) -> None:
    found = document()
    channel = found["channels"][f"relay.{relay}"]

    assert (channel["address"], channel["bindings"]) == (address, bindings)
    assert found["operations"][f"relay.{relay}"]["action"] == "send"


def test_the_headers_are_those_of_the_envelope() -> None:
    found = document()

    def headers(relay: str) -> Any:
        message = found["channels"][f"relay.{relay}"]["messages"]["order.placed"]
        name = message["headers"]["$ref"].rpartition("/")[2]
        return set(found["components"]["schemas"][name]["properties"])

    assert {"event_id", "key", "tenant", "correlation_id"} <= headers("kafka")
    assert {"ce_id", "ce_type", "ce_correlationid"} <= headers("events")
    assert {"event-id", "correlation-id"} <= headers("hook")


def test_a_structured_cloud_event_has_the_payload_inside() -> None:
    message = document()["channels"]["relay.exchange"]["messages"]["order.placed"]

    assert message["contentType"] == "application/cloudevents+json"
    assert message["payload"]["properties"]["data"] == {"$ref": "#/components/schemas/order.placed"}


def test_what_a_map_sends_is_not_known() -> None:
    assert document()["channels"]["relay.mapped"]["messages"]["order.placed"].keys() == {
        "name",
        "bindings",
    }


def test_no_address_of_a_server_and_no_secret_is_in_it() -> None:
    text = as_text(document())

    for word in ("hunter2", "internal", "acme.example", "9092", SECRET, "://"):
        assert word not in text


def test_it_is_the_same_text_whatever_the_order_of_declaration() -> None:
    outbox, types = program()
    other = Outbox()
    for each in reversed(list(outbox.listeners)):
        other.listeners.add(each)
    for cron in outbox.crons:
        other.crons.add(cron)

    assert as_text(described(contents_of(other, types), title=None, version="1.0.0")) == as_text(
        document()
    )


def test_every_reference_leads_somewhere() -> None:
    found = document()

    def references(node: Any) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
            return own + [one for each in node.values() for one in references(each)]
        return [one for each in node for one in references(each)] if isinstance(node, list) else []

    assert len(references(found)) > 20
    for reference in references(found):
        node = found
        for step in reference.removeprefix("#/").split("/"):
            node = node[step.replace("~1", "/").replace("~0", "~")]


@pytest.mark.skipif(
    not OFFICIAL.is_file(), reason="needs npm's @asyncapi/specs: make programs fetches it"
)
def test_it_is_valid_by_the_schema_of_asyncapi() -> None:
    official = json.loads(OFFICIAL.read_text())
    judge = jsonschema.Draft7Validator(official)

    found = document()
    assert [each.message for each in judge.iter_errors(found)] == []

    found["operations"]["listener.audit"]["action"] = "subscribe"  # a judge that judges
    assert not judge.is_valid(found)


def test_the_schemas_alone_are_a_json_schema_by_which_payloads_are_judged() -> None:
    outbox, types = program()
    found = schemas(contents_of(outbox, types))
    jsonschema.Draft7Validator.check_schema(found)
    judge = jsonschema.Draft7Validator({**found, "$ref": "#/definitions/order.placed"})

    good = {"order_id": 1, "total": "1.5", "at": "2026-01-02T03:04:05Z", "lines": [{"sku": "a"}]}
    assert judge.is_valid(good)
    assert not judge.is_valid({**good, "order_id": "1"})
    assert not judge.is_valid({**good, "lines": [{}]})


def test_an_event_type_with_marks_is_a_name_of_its_own() -> None:
    types, outbox = EventTypes(), Outbox()
    for name in ("a:b", "a/b", "a-b", "a.b"):
        types.register(name)(type(f"Of{len(name)}{name}", (Line,), {}))

    found = described(contents_of(outbox, types), title=None, version="1")["components"]

    assert len(found["messages"]) == 4


def test_a_class_that_has_no_schema_is_an_error_that_names_it() -> None:
    @dataclass
    class Odd:
        field: "Nowhere"  # type: ignore[name-defined]  # noqa: F821, UP037 - the point

    types = EventTypes()
    types.register("odd.one")(Odd)

    with pytest.raises(ConfigError, match=r"Odd, the class of 'odd.one', has no JSON Schema: Name"):
        described(contents_of(Outbox(), types), title=None, version="1")


def test_a_field_whose_type_no_library_knows_is_open() -> None:
    class Unknown:
        pass

    @dataclass
    class With:
        field: Unknown

    With.__annotations__["field"] = Unknown  # it can't be looked up by its name
    types = EventTypes()
    types.register("odd.two")(With)

    found = described(contents_of(Outbox(), types), title=None, version="1")["components"]

    (field,) = found["schemas"]["odd.two"]["properties"].values()
    assert field.keys() == {"title"}
