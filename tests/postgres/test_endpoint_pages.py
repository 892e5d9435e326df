"""Webhook endpoints in the dashboard: what they get, how they are, and never a secret."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import URL, Engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import Outbox
from sa_outbox.operations.endpoint_view import covered
from tests.support.dashboard import Visiting, dashboard_of

pytestmark = pytest.mark.anyio

SECRETS = ("sealed-signing-secret", "sealed-bearer", "pa55", "t0ken")
URL_OF_ACME = "https://bot:pa55@hooks.acme.example/in?token=t0ken"


@pytest.fixture
def endpoints(engine: Engine) -> Engine:
    settings = {"on": ["order.*"], "where": {"country": "DE"}, "timeout": 9.0}
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO outbox_endpoints (name, url, settings, secrets, bearer) VALUES"
                " ('acme', :url, cast(:settings AS jsonb), '[\"sealed-signing-secret\"]',"
                " 'sealed-bearer'), ('odd', 'not a url', '[]', '[]', NULL)"
            ),
            {"url": URL_OF_ACME, "settings": json.dumps(settings)},
        )
        connection.execute(text("INSERT INTO outbox_listeners (name) VALUES ('webhook:acme')"))
        connection.execute(
            text(
                "INSERT INTO outbox_dead_letters (listener, position, event_id, event_type,"
                " payload, event_created_at, reason) VALUES ('webhook:acme', 1,"
                " gen_random_uuid(), 'order.placed', '1', now(), 'attempts')"
            )
        )
    return engine


@pytest.fixture
async def grace(endpoints: Engine, migrated_url: URL) -> AsyncIterator[Visiting]:
    made = create_async_engine(migrated_url.set(drivername="postgresql+asyncpg"))
    async with Visiting(dashboard_of(Outbox(notify="off"), made)) as visiting:
        await visiting.sign_in()
        yield visiting
    await made.dispose()


def stored(engine: Engine) -> Any:
    statement = "SELECT disabled_at, disabled_why FROM outbox_endpoints WHERE name = 'acme'"
    with engine.connect() as connection:
        return connection.execute(text(statement)).one()


async def test_list_and_page_show_what_it_gets_and_no_secret(grace: Visiting) -> None:
    listed = (await grace.see("/endpoints")).text
    one = (await grace.see("/endpoint?name=acme")).text

    for page in (listed, one):
        assert "hooks.acme.example/in" in page
        assert "order.*" in page
        assert [each for each in SECRETS if each in page] == []
    assert "not served" in listed  # of odd, which nobody has registered
    assert "&quot;country&quot;: &quot;DE&quot;" in one
    assert "9.0" in one
    assert 'href="/dead-letters?listener=webhook%3Aacme">1</a>' in one
    assert (await grace.see("/endpoint?name=odd")).status_code == 200
    assert (await grace.see("/endpoint?name=nobody")).status_code == 404


async def test_it_is_disabled_and_enabled_once_with_who_and_why(
    grace: Visiting, endpoints: Engine
) -> None:
    await grace.see("/endpoint?name=acme")
    first = await grace.post("/endpoint/disable", name="acme", why="they asked")
    second = await grace.post("/endpoint/disable", name="acme")

    page = (await grace.see(first.headers["location"])).text
    assert "Disabled." in page
    assert "they asked" in page
    assert "Enable" in page
    assert "somebody was faster" in (await grace.see(second.headers["location"])).text
    assert stored(endpoints).disabled_why == "they asked"
    await grace.post("/endpoint/enable", name="acme")
    assert stored(endpoints).disabled_at is None
    records = (await grace.see("/audit?listener=webhook%3Aacme")).text
    assert "endpoint disabled" in records
    assert "endpoint enabled" in records
    assert (await grace.post("/endpoint/disable", name="nobody")).status_code == 404
    assert (await grace.post("/endpoint/disable")).status_code == 400


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://a.example/b", "https://a.example/b"),
        ("https://u:p@a.example:8443/b?c=d&e", "https://***@a.example:8443/b?c=***&e=***"),
        ("https://[nonsense", "***"),
    ],
)
def test_what_may_be_a_secret_in_an_address_is_covered(url: str, shown: str) -> None:
    assert covered(url) == shown
