"""A dump restored into a second cluster: listeners go on, external ones wait to be adopted."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from datetime import timedelta

import anyio
import pytest
from click.testing import CliRunner
from psycopg import sql
from sqlalchemy import URL, create_engine, make_url, text
from sqlalchemy.pool import NullPool

from sa_outbox import Event, Outbox
from sa_outbox.cli import main
from sa_outbox.consumer import Consumer, ConsumerSettings
from sa_outbox.embedded import EmbeddedPostgres
from sa_outbox.embedded.binaries import find_binaries
from sa_outbox.observe import CopyFound, DeliverySettled
from sa_outbox.schema import migrate, problems
from sa_outbox.schema.identity import Home, find_home
from sa_outbox.settings import Names
from tests.support.recorder import Recorder
from tests.support.server import ADDRESS_VARIABLE, administer, temporary_database

pytestmark = pytest.mark.anyio

LEFT_BEHIND = """
UPDATE outbox_listeners SET locked_by = 'old:1:a', lease_token = lease_token + 1,
    lease_expires_at = clock_timestamp() + interval '1 second' WHERE name = 'index'
"""


@pytest.fixture
def second_cluster(server_url: str) -> Iterator[EmbeddedPostgres]:
    if ADDRESS_VARIABLE in os.environ:
        pytest.skip("pg_dump and the server in the environment may be of two versions")
    if not all((find_binaries() / name).exists() for name in ("pg_dump", "psql")):
        pytest.skip("the embedded server comes without pg_dump and psql")
    with EmbeddedPostgres() as server:
        yield server


def restore(source: URL, target: URL) -> None:
    programs = find_binaries()
    dump = subprocess.run(
        [programs / "pg_dump", "--dbname", shown(source)], capture_output=True, check=True
    )
    subprocess.run(
        [programs / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", shown(target)],
        input=dump.stdout,
        stdout=subprocess.DEVNULL,
        check=True,
    )


def shown(url: URL) -> str:
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


def shop(seen: list[tuple[str, int]]) -> Outbox:
    outbox = Outbox()

    @outbox.listener("index", on="order.*")
    async def index(event: Event[dict[str, int]]) -> None:
        seen.append(("index", event.payload["n"]))

    @outbox.listener("mails", on="order.*", external=True)
    async def mails(event: Event[dict[str, int]]) -> None:
        seen.append(("mails", event.payload["n"]))

    return outbox


def add(outbox: Outbox, url: URL, *numbers: int) -> None:
    engine = create_engine(url.set(drivername="postgresql+psycopg"))
    with outbox.sessionmaker(engine).begin() as session:
        for number in numbers:
            session.add_event("order.placed", {"n": number})
    engine.dispose()


async def test_a_clone_on_the_same_server_is_a_copy_and_a_database_that_is_renamed_is_none(
    server_url: str,
) -> None:
    with (
        temporary_database(server_url, "original") as source,
        temporary_database(server_url, "clone") as clone,
    ):
        engine = create_engine(source.set(drivername="postgresql+psycopg"), poolclass=NullPool)
        with engine.begin() as connection:
            migrate(connection, Names())
        name, old = sql.Identifier(clone.database or ""), sql.Identifier(source.database or "")
        administer(server_url, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
        everybody_leaves(server_url, source)
        administer(server_url, sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(name, old))
        assert home_of(clone).is_copy
        everybody_leaves(server_url, source)
        administer(server_url, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
        administer(server_url, sql.SQL("ALTER DATABASE {} RENAME TO {}").format(old, name))
        assert not home_of(clone).is_copy


def everybody_leaves(server_url: str, url: URL) -> None:
    """A server process ends a moment after its client has said goodbye."""
    leave = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = {}"
    administer(server_url, sql.SQL(leave).format(sql.Literal(url.database)))


def home_of(url: URL) -> Home:
    engine = create_engine(url.set(drivername="postgresql+psycopg"), poolclass=NullPool)
    with engine.connect() as connection:
        return find_home(connection, Names())


async def test_a_restored_dump_goes_on_where_it_stood_and_mails_nobody_until_it_is_adopted(
    server_url: str, second_cluster: EmbeddedPostgres
) -> None:
    before: list[tuple[str, int]] = []
    after: list[tuple[str, int]] = []
    with temporary_database(server_url, "dumped") as source:
        engine = create_engine(source.set(drivername="postgresql+psycopg"))
        with engine.begin() as connection:
            migrate(connection, Names())
        outbox = shop(before)
        add(outbox, source, 1)
        await Consumer(outbox, source).drain()
        add(outbox, source, 2)
        with engine.begin() as connection:
            connection.execute(text(LEFT_BEHIND))
        engine.dispose()
        target = make_url(second_cluster.create_database("restored"))
        await anyio.to_thread.run_sync(restore, source, target)

    outbox, recorder = shop(after), Recorder()
    settings = ConsumerSettings(verify_interval=timedelta(milliseconds=50))
    consumer = Consumer(outbox, target, settings=settings, observers=[recorder])
    add(outbox, target, 3)
    async with anyio.create_task_group() as tasks:
        await tasks.start(consumer.run)
        await recorder.seen(CopyFound)
        # The lease of a consumer of the old cluster expires like any other.
        await recorder.seen(DeliverySettled, listener="index", times=2, within=20)
        assert after == [("index", 2), ("index", 3)]

        words = ["adopt", "--confirm", "restored", "--database-url", shown(target)]
        result = await anyio.to_thread.run_sync(CliRunner().invoke, main, words)
        assert result.exit_code == 0, result.output
        await recorder.seen(DeliverySettled, listener="mails", times=2, within=20)
        consumer.stop()

    assert sorted(before) == [("index", 1), ("mails", 1)]
    assert after[2:] == [("mails", 2), ("mails", 3)]
    engine = create_engine(target.set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        assert problems(connection, Names()) == []
    engine.dispose()
