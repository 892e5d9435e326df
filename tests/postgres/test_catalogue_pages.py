"""The dashboard's pages of the catalogue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sa_outbox import Event, Outbox, event_type
from sa_outbox.catalog import asyncapi
from sa_outbox.dashboard import DashboardOptions
from sa_outbox.errors import ConfigError
from sa_outbox.relay.kafka import Kafka
from tests.support.dashboard import MARKUP, Visiting, dashboard_of

pytestmark = pytest.mark.anyio


@dataclass
class PageLine:
    sku: str
    count: int = 1


@event_type("catalogue-page.ordered", version=2)
@dataclass
class PageOrdered:
    order_id: int
    lines: list[PageLine] = field(default_factory=list)
    parent: PageOrdered | None = None


def program() -> Outbox:
    outbox = Outbox()

    @outbox.listener("billing", on="catalogue-page.*")
    async def bill(event: Event[PageOrdered]) -> None: ...

    @outbox.listener("mail", on="catalogue-page.joined")
    async def mail(event: Event) -> None: ...

    outbox.relay("to-kafka", Kafka("broker:9092"), on="catalogue-page.ordered", to="orders")
    return outbox


@pytest.fixture
async def async_engine(migrated_url: URL) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(migrated_url.set(drivername="postgresql+asyncpg"))
    yield made
    await made.dispose()


async def see(outbox: Outbox, engine: AsyncEngine, path: str, **options: object) -> str:
    async with Visiting(dashboard_of(outbox, engine, **options)) as visiting:
        await visiting.sign_in()
        answer = await visiting.see(path)
        assert answer.status_code == 200
        return answer.text


async def test_the_catalogue_lists_event_types_with_their_readers(
    async_engine: AsyncEngine,
) -> None:
    text = await see(program(), async_engine, "/catalogue")

    for shown in ("catalogue-page.ordered", "catalogue-page.joined", "billing", "mail", "to-kafka"):
        assert f"<bdi>{shown}</bdi>" in text
    assert "any JSON" in text
    assert "/catalogue/type?name=catalogue-page.ordered" in text


async def test_the_page_of_an_event_type_has_its_fields_and_who_reads_it(
    async_engine: AsyncEngine,
) -> None:
    text = await see(program(), async_engine, "/catalogue/type?name=catalogue-page.ordered")

    for shown in ("order_id", "lines", "lines[].sku", "parent", "PageOrdered", "orders"):
        assert f"<bdi>{shown}</bdi>" in text
    assert "parent.parent" not in text
    assert "<bdi>mail</bdi>" not in text


async def test_an_event_type_that_is_not_there_is_an_error_of_its_own(
    async_engine: AsyncEngine,
) -> None:
    async with Visiting(dashboard_of(program(), async_engine)) as visiting:
        await visiting.sign_in()
        assert (await visiting.see("/catalogue/type?name=nowhere")).status_code == 404


async def test_a_dashboard_that_knows_no_program_shows_the_committed_catalogue(
    async_engine: AsyncEngine,
) -> None:
    document = asyncapi(program())
    text = await see(Outbox(), async_engine, "/catalogue", catalogue=document)

    assert "From the committed file." in text
    assert "<bdi>to-kafka</bdi>" in text


async def test_a_dashboard_that_knows_nothing_says_what_to_do(async_engine: AsyncEngine) -> None:
    document = asyncapi(program())
    document["components"] = {"messages": {}, "schemas": {}}
    text = await see(Outbox(), async_engine, "/catalogue", catalogue=document)

    assert "--catalogue asyncapi.json" in text


async def test_text_from_a_catalogue_is_shown_as_text(async_engine: AsyncEngine) -> None:
    document = asyncapi(program())
    schema = document["components"]["schemas"]["catalogue-page.ordered"]
    schema["properties"][MARKUP] = {"type": MARKUP, "description": MARKUP}
    schema["title"] = MARKUP
    page = "/catalogue/type?name=catalogue-page.ordered"

    text = await see(Outbox(), async_engine, page, catalogue=document)

    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text


async def test_a_class_without_a_schema_is_named_on_the_page(
    async_engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(outbox: Outbox) -> dict[str, object]:
        raise ConfigError("Odd, the class of 'odd.one', has no JSON Schema")

    monkeypatch.setattr("sa_outbox.dashboard.routes.catalogue.asyncapi", broken)

    assert "has no JSON Schema" in await see(program(), async_engine, "/catalogue")


async def test_a_file_that_is_no_catalogue_is_refused_at_the_start(
    async_engine: AsyncEngine,
) -> None:
    options: DashboardOptions = {"catalogue": {}}
    with pytest.raises(ConfigError, match="not a catalogue"):
        dashboard_of(Outbox(), async_engine, **options)
