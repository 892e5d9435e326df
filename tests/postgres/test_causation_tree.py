"""What caused an event and what it caused: as a tree, with the state of each."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import anyio
import pytest
from click.testing import CliRunner
from sqlalchemy import URL, Engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import AsyncOutboxSession, Event, Outbox, RetryPolicy
from sa_outbox.cli import main
from sa_outbox.consumer import Consumer
from sa_outbox.errors import EventNotFound
from sa_outbox.operations import causation as reading
from sa_outbox.operations.causation import Causation, CausedEvent, causation_of
from tests.support.dashboard import Visiting, dashboard_of

pytestmark = pytest.mark.anyio

OUTBOX = Outbox(notify="off")


class Chain:
    """An order causes a payment and an email; the payment causes a receipt, which fails."""

    def __init__(self, engine: Engine, url: URL) -> None:
        self.engine, self.url = engine, url.set(drivername="postgresql+asyncpg")
        self.outbox = Outbox(notify="off")

        @self.outbox.listener("shop", on=["order", "payment"])
        async def react(event: Event[Any], session: AsyncOutboxSession) -> None:
            following = {"order": ("payment", "email"), "payment": ("receipt",)}
            for each in following[event.event_type]:
                session.add_event(each, event.payload)

        @self.outbox.listener("printer", on="receipt", retry=RetryPolicy(attempts=1))
        async def print_(event: Event[Any]) -> None:
            raise ValueError("out of paper")

    async def run(self, *orders: int) -> None:
        with self.outbox.sessionmaker(self.engine).begin() as session:
            for number in orders:
                session.add_event("order", number)
        made = create_async_engine(self.url)
        for _ in range(3):  # each delivers what was there when it began
            await Consumer(self.outbox, made).drain()
        await made.dispose()

    def around(self, event_type: str, order: int = 1) -> Causation:
        statement = (
            "SELECT event_id FROM outbox WHERE event_type = :type AND payload = CAST(:n AS jsonb)"
        )
        with self.engine.connect() as connection:
            values = {"type": event_type, "n": str(order)}
            event_id: UUID = connection.execute(text(statement), values).scalar_one()
            listeners = self.outbox.listeners
            return causation_of(connection, self.outbox.tables, event_id, listeners=listeners)


@pytest.fixture
def chain(engine: Engine, migrated_url: URL) -> Chain:
    return Chain(engine, migrated_url)


def drawn(event: CausedEvent) -> Any:
    return (event.event_type, event.state, [drawn(each) for each in event.caused])


async def test_below_is_what_it_caused_and_no_other_order_s(chain: Chain) -> None:
    await chain.run(1, 2)

    found = chain.around("order")

    receipt: Any = ("receipt", "dead", [])
    payment = ("payment", "succeeded", [receipt])
    assert drawn(found.event) == ("order", "succeeded", [payment, ("email", "no listener", [])])
    assert found.causes == ()
    assert not found.is_cut


async def test_above_is_the_way_to_it_and_not_its_siblings(chain: Chain) -> None:
    await chain.run(1)

    found = chain.around("receipt")

    assert [(each.event_type, each.caused) for each in found.causes] == [
        ("order", ()),
        ("payment", ()),
    ]
    assert drawn(found.event) == ("receipt", "dead", [])


async def test_a_cause_that_is_gone_is_named(chain: Chain, engine: Engine) -> None:
    await chain.run(1)
    with engine.begin() as connection:
        gone = connection.execute(
            text("DELETE FROM outbox WHERE event_type = 'order' RETURNING event_id")
        ).scalar_one()

    found = chain.around("receipt")

    assert [each.event_type for each in found.causes] == ["payment"]
    assert found.lost_cause == gone


@pytest.mark.parametrize(("bound", "value"), [("MAX_CAUSED", 2), ("MAX_LEVELS", 1)])
async def test_what_is_beyond_a_bound_is_left_out_and_said(
    chain: Chain, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    await chain.run(1)
    monkeypatch.setattr(reading, bound, value)

    found = chain.around("order")

    assert drawn(found.event) == (
        "order",
        "succeeded",
        [("payment", "succeeded", []), ("email", "no listener", [])],
    )
    assert found.is_cut


def add(engine: Engine, **headers: str) -> UUID:
    event_id = UUID(headers.pop("event_id", str(uuid4())))
    statement = (
        "INSERT INTO outbox (event_id, event_type, payload, headers)"
        " VALUES (:id, 'a', '1', cast(:headers AS jsonb))"
    )
    with engine.begin() as connection:
        connection.execute(text(statement), {"id": event_id, "headers": json.dumps(headers)})
    return event_id


@pytest.mark.parametrize("cause", ["nonsense", "itself"])
def test_a_header_that_somebody_made_up_ends_the_way_up(engine: Engine, cause: str) -> None:
    own = str(uuid4())
    add(engine, event_id=own, causation_id=own if cause == "itself" else cause)

    with engine.connect() as connection:
        found = causation_of(connection, OUTBOX.tables, own)

    assert (found.causes, found.lost_cause, found.event.caused) == ((), None, ())


def test_a_long_way_up_is_cut(engine: Engine) -> None:
    last = add(engine)
    for _ in range(12):
        last = add(engine, causation_id=str(last))

    with engine.connect() as connection:
        found = causation_of(connection, OUTBOX.tables, last)

    assert len(found.causes) == 10
    assert found.is_cut


def test_of_an_event_that_is_gone_nothing_is_known(engine: Engine) -> None:
    with engine.connect() as connection, pytest.raises(EventNotFound):
        causation_of(connection, OUTBOX.tables, uuid4())


async def test_page_and_command_draw_it(chain: Chain, migrated_url: URL) -> None:
    await chain.run(1)
    made = create_async_engine(chain.url)
    async with Visiting(dashboard_of(chain.outbox, made)) as grace:
        await grace.sign_in()
        payment = str(chain.around("payment").event.event_id)
        page = (await grace.see(f"/events/{payment}")).text
    await made.dispose()
    tree = page.split('class="tree"')[1].split("</section>")[0]
    assert tree.index("order") < tree.index('aria-current="true"') < tree.index("receipt")
    assert "dead" in tree
    assert "email" not in tree

    def run(*words: str) -> str:
        environment = {"SA_OUTBOX_DATABASE_URL": migrated_url.render_as_string(hide_password=False)}
        result = CliRunner().invoke(main, ["events", "show", payment, *words], env=environment)
        assert result.exit_code == 0, result.output
        return result.output

    lines = (await anyio.to_thread.run_sync(run, "--tree")).splitlines()
    assert [line.split()[0] for line in lines] == ["order", "payment", "receipt"]
    assert [len(line) - len(line.lstrip()) for line in lines] == [0, 2, 4]
    assert lines[1].endswith("<--")
    found = json.loads(await anyio.to_thread.run_sync(run, "--tree", "--json"))
    assert found["event"]["caused"][0]["state"] == "dead"
