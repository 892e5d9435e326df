"""Events of a pydantic class: written by a session, handled as JSON or objects, and forwarded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pydantic
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from sa_outbox import Event, Outbox, event_type, upcaster
from sa_outbox.observe import DeadLettered
from sa_outbox.relay import Answer, CloudEvents, Message, Plain

from .conftest import Database, Producer, make_consumer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

LINK = "https://example.com/"


@event_type("typed.published", version=2)
class Published(pydantic.BaseModel):
    link: pydantic.HttpUrl
    tags: set[str]


@upcaster("typed.published", since=1)
def with_tags(payload: Any) -> Any:
    return {**payload, "tags": ["old"]}


class Wire:
    """A relay that keeps what it is given."""

    attribute_prefix = "ce-"
    keeps_order = True
    takes_batches = True

    def __init__(self) -> None:
        self.taken: list[Message] = []

    def check_destination(self, destination: str) -> None: ...

    async def send(self, messages: Sequence[Message]) -> Sequence[Answer]:
        self.taken += messages
        return [None] * len(messages)

    async def close(self) -> None: ...


async def test_a_pydantic_class_works_through_every_envelope_and_every_kind_of_handler(
    outbox: Outbox, producer: Producer, database: Database, async_engine: AsyncEngine
) -> None:
    plain, binary, structured, mapped = Wire(), Wire(), Wire(), Wire()
    got: dict[str, list[Any]] = {"object": [], "json": [], "batch": [], "map": []}

    @outbox.listener("object")
    async def as_object(event: Event[Published]) -> None:
        got["object"].append(event.payload)

    @outbox.listener("json", on="typed.*")
    async def as_json(event: Event) -> None:
        got["json"].append(event.payload)

    @outbox.listener("batch", on="typed.*")
    async def as_batch(events: Sequence[Event[dict[str, Any]]]) -> None:
        got["batch"] += [event.payload for event in events]

    def own_message(event: Event[Published]) -> Message:
        got["map"].append(event.payload)
        return Plain().wrap(event, "orders", epoch=1, prefix="")

    outbox.relay("plain", plain, on="typed.*", to="orders")
    outbox.relay("binary", binary, on=Published, to="orders", envelope=CloudEvents("/shop"))
    envelope = CloudEvents("/shop", mode="structured")
    outbox.relay("structured", structured, on=Published, to="orders", envelope=envelope)
    outbox.relay("mapped", mapped, on=Published, map=own_message)

    payload = '\'{"link": "https://example.com/"}\''
    database.write_raw(event_type="'typed.published'", payload=payload)
    with producer.open() as session:
        session.add_event(Published(link=pydantic.HttpUrl(LINK), tags={"b", "a"}))
    consumer, recorder = make_consumer(outbox, async_engine)

    await consumer.drain()

    old, new = {"link": LINK, "tags": ["old"]}, {"link": LINK, "tags": ["a", "b"]}
    objects = [Published.model_validate(old), Published.model_validate(new)]
    assert recorder.of(DeadLettered) == []
    assert got["object"] == got["map"] == objects

    def sorted_tags(payload: dict[str, Any]) -> dict[str, Any]:
        return {**payload, "tags": sorted(payload["tags"])}

    for each in ("json", "batch"):
        assert [sorted_tags(one) for one in got[each]] == [old, new]
    for wire in (plain, binary, mapped):
        assert [sorted_tags(json.loads(one.body)) for one in wire.taken] == [old, new]
    assert [sorted_tags(json.loads(one.body)["data"]) for one in structured.taken] == [old, new]
    assert [one.headers["version"] for one in plain.taken] == ["2", "2"], "of what is sent"
