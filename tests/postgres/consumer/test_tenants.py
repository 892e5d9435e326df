"""Tenants in handlers: their events' context goes on, and nobody sees another one's rows."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import AsyncOutboxSession, Event, Outbox, OutboxSession, event_context
from sa_outbox.consumer import Consumer
from sa_outbox.errors import ConfigError
from sa_outbox.settings import Notify

from .conftest import ONCE, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("poll")]

LOG = "SELECT event_type, tenant, headers FROM outbox ORDER BY id"


class TestContext:
    async def test_events_a_handler_adds_carry_the_context_on(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        @outbox.listener("billing", on="order.placed")
        async def charge(event: Event[Any], session: AsyncOutboxSession) -> None:
            session.add_event("order.paid")

        with event_context(
            tenant="acme", project_id="p", actor_type="user", actor_id="7", request_id="r"
        ):
            producer.add(1)

        async with consuming(outbox) as running:
            await running.done("billing")

        placed, paid = database.rows(LOG)
        assert paid.tenant == "acme"
        assert placed.headers.items() <= paid.headers.items()
        assert set(placed.headers) == {"project_id", "actor_type", "actor_id", "request_id"}

    async def test_a_consumer_inside_of_a_context_does_not_lend_it_to_its_handlers(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        @outbox.listener("billing", on="order.placed")
        async def charge(event: Event[Any], session: AsyncOutboxSession) -> None:
            session.add_event("order.paid")

        producer.add(1, tenant="acme")
        producer.add(2)

        with event_context(tenant="of the program", actor_id="7"):
            async with consuming(outbox) as running:
                await running.done("billing", times=2)

        paid = [row for row in database.rows(LOG) if row.event_type == "order.paid"]
        assert [row.tenant for row in paid] == ["acme", None]
        assert [row for row in paid if "actor_id" in row.headers] == []

    async def test_a_sync_handler_s_events_carry_it_on_too(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        @outbox.listener("billing", on="order.placed")
        def charge(event: Event[Any], session: OutboxSession) -> None:
            session.add_event("order.paid")

        producer.add(1, tenant="acme")

        async with consuming(outbox) as running:
            await running.done("billing")

        assert [row.tenant for row in database.rows(LOG)] == ["acme", "acme"]


class TestOtherTenants:
    async def test_an_event_for_another_tenant_fails_the_attempt_and_is_not_written(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        @outbox.listener("billing", on="order.placed", retry=ONCE)
        async def charge(event: Event[Any], session: AsyncOutboxSession) -> None:
            session.add_event("order.paid", tenant="other")

        producer.add(1, tenant="acme")

        async with consuming(outbox) as running:
            await running.dead("billing")

        [dead] = database.dead_letters("billing")
        assert dead.errors[0]["code"] == "cross-tenant"
        assert "other'" not in dead.errors[0]["message"]
        assert len(database.rows(LOG)) == 1

    async def test_it_can_be_meant(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        @outbox.listener("billing", on="order.placed")
        async def charge(event: Event[Any], session: AsyncOutboxSession) -> None:
            with event_context(tenant="platform", cross_tenant=True):
                session.add_event("order.counted")

        producer.add(1, tenant="acme")

        async with consuming(outbox) as running:
            await running.done("billing")

        assert [row.tenant for row in database.rows(LOG)] == ["acme", "platform"]

    async def test_a_batch_of_one_tenant_adds_for_no_other(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        @outbox.listener("billing", on="order.placed", retry=ONCE)
        async def charge(events: Sequence[Event[Any]], session: AsyncOutboxSession) -> None:
            session.add_event("order.paid", {"of": len(events)})
            session.add_event("order.paid", tenant="other")

        producer.add(1, 2, tenant="acme")

        async with consuming(outbox) as running:
            await running.dead("billing", times=2)

        assert {each.errors[0]["code"] for each in database.dead_letters("billing")} == {
            "cross-tenant"
        }

    async def test_a_batch_of_several_tenants_adds_for_each_of_them(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        @outbox.listener("billing", on="order.placed")
        async def charge(events: Sequence[Event[Any]], session: AsyncOutboxSession) -> None:
            for event in events:
                session.add_event("order.paid", tenant=event.tenant)

        with producer.open() as session:
            for tenant in ("a", "b"):
                session.add_event("order.placed", tenant=tenant)

        async with consuming(outbox) as running:
            await running.done("billing", times=2)

        assert [row.tenant for row in database.rows(LOG)] == ["a", "b", "a", "b"]


_NOTES = """
CREATE TABLE IF NOT EXISTS notes (tenant text NOT NULL, body text NOT NULL);
TRUNCATE notes;
ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS own_rows ON notes;
CREATE POLICY own_rows ON notes USING (tenant = current_setting('app.tenant', true));
INSERT INTO notes VALUES ('a', 'of a'), ('b', 'of b'), ('', 'of nobody')
"""


class TestRowLevelSecurity:
    @pytest.fixture
    def role(self, database: Database) -> Iterator[str]:
        """A role that policies hold for, with the rights of a consumer."""
        name = f"tenants_{secrets.token_hex(6)}"
        for statement in _NOTES.split(";"):
            database.rows(statement)
        database.rows(f"CREATE ROLE {name} LOGIN PASSWORD 'known'")
        tables = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'outbox%'"
        for [table] in database.rows(tables):
            database.rows(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {name}")
        database.rows(f"GRANT SELECT ON SEQUENCE outbox_id_seq TO {name}")
        database.rows(f"GRANT SELECT, INSERT ON notes TO {name}")
        yield name
        database.rows("DROP TABLE notes")
        database.rows(f"DROP OWNED BY {name}")
        database.rows(f"DROP ROLE {name}")

    @pytest.fixture
    def outbox(self, notify: Notify) -> Outbox:
        return Outbox(notify=notify, tenant_setting="app.tenant")

    @pytest.fixture
    def url(self, role: str, migrated_url: URL) -> URL:
        return migrated_url.set(username=role, password="known")

    async def test_a_handler_sees_the_rows_of_its_tenant_only(
        self, outbox: Outbox, producer: Producer, url: URL
    ) -> None:
        """One connection for all: nothing of an event is left for the next one on it."""
        seen: list[tuple[str | None, int, list[str]]] = []

        @outbox.listener("notes", on="order.*")
        async def look(event: Event[Any], session: AsyncOutboxSession) -> None:
            pid = await session.scalar(text("SELECT pg_backend_pid()"))
            found = await session.scalars(text("SELECT body FROM notes WHERE tenant <> ''"))
            assert pid is not None
            seen.append((event.tenant, pid, list(found)))

        for tenant in ("a", "b", None, "a"):
            producer.add(1, tenant=tenant)
        engine = create_async_engine(
            url.set(drivername="postgresql+asyncpg"), pool_size=1, max_overflow=0
        )
        try:
            await Consumer(outbox, engine).drain()
            async with engine.connect() as connection:
                setting = text("SELECT current_setting('app.tenant', true)")
                left = await connection.scalar(setting)
        finally:
            await engine.dispose()

        assert [(tenant, found) for tenant, _, found in seen] == [
            ("a", ["of a"]),
            ("b", ["of b"]),
            (None, []),
            ("a", ["of a"]),
        ]
        assert len({pid for _, pid, _ in seen}) == 1
        assert left == ""

    async def test_a_handler_can_not_write_rows_of_another_tenant(
        self, outbox: Outbox, producer: Producer, database: Database, url: URL
    ) -> None:
        @outbox.listener("notes", on="order.*", retry=ONCE)
        async def write(event: Event[Any], session: AsyncOutboxSession) -> None:
            tenant = event.payload["for"]
            await session.execute(
                text("INSERT INTO notes VALUES (:tenant, 'new')"), {"tenant": tenant}
            )

        with producer.open() as session:
            session.add_event("order.placed", {"for": "a"}, tenant="a")
            session.add_event("order.placed", {"for": "b"}, tenant="a")
        await Consumer(outbox, url).drain()

        written = database.rows("SELECT tenant FROM notes WHERE body = 'new'")
        assert [row.tenant for row in written] == ["a"]
        assert len(database.dead_letters("notes")) == 1

    async def test_a_sync_handler_s_transaction_has_the_setting_too(
        self, outbox: Outbox, producer: Producer, url: URL
    ) -> None:
        seen: list[list[str]] = []

        @outbox.listener("notes", on="order.*")
        def look(event: Event[Any], session: OutboxSession) -> None:
            seen.append(list(session.scalars(text("SELECT body FROM notes"))))

        for tenant in ("a", "b"):
            producer.add(1, tenant=tenant)
        await Consumer(outbox, url).drain()

        assert seen == [["of a"], ["of b"]]

    async def test_the_attempt_after_one_that_failed_has_its_own(
        self, outbox: Outbox, producer: Producer, consuming: Consuming, database: Database
    ) -> None:
        seen: list[str | None] = []

        @outbox.listener("notes", on="order.*", retry=ONCE)
        async def look(event: Event[Any], session: AsyncOutboxSession) -> None:
            value = "SELECT current_setting('app.tenant', true)"
            seen.append(await session.scalar(text(value)))
            if event.tenant == "a":
                raise ValueError("no")

        for tenant in ("a", "b"):
            producer.add(1, tenant=tenant)
        async with consuming(outbox) as running:
            await running.done("notes")

        assert seen == ["a", "b"]
        assert len(database.dead_letters("notes")) == 1


class TestDeclaring:
    def test_batches_in_a_session_are_refused_with_a_tenant_setting(self) -> None:
        outbox = Outbox(tenant_setting="app.tenant")

        with pytest.raises(ConfigError, match="several tenants"):

            @outbox.listener("billing", on="order.*")
            async def charge(events: Sequence[Event[Any]], session: AsyncOutboxSession) -> None: ...

        assert len(outbox.listeners) == 0

    def test_batches_without_a_session_and_sessions_without_batches_are_not(self) -> None:
        outbox = Outbox(tenant_setting="app.tenant")

        @outbox.listener("one", on="order.*")
        async def one(events: Sequence[Event[Any]]) -> None: ...

        @outbox.listener("two", on="order.*")
        async def two(event: Event[Any], session: AsyncOutboxSession) -> None: ...

        assert len(outbox.listeners) == 2

    @pytest.mark.parametrize(
        "setting",
        ["", "tenant", "app.", ".tenant", "a.b.c", "app.te nant", "app.x'", "1.a", "pg_x.a", 7],
    )
    def test_a_setting_has_a_name_with_one_dot(self, setting: Any) -> None:
        with pytest.raises(ConfigError, match="tenant_setting"):
            Outbox(tenant_setting=setting)
