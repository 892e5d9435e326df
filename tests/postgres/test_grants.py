"""The rights that ``sa-outbox grants`` prints are enough for what each role does, and no wider."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import click
import psycopg
import pytest
from click.testing import CliRunner
from sqlalchemy import URL, Engine, NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import Event, Outbox, RetryPolicy, schema
from sa_outbox.cli import main
from sa_outbox.consumer import Consumer, ConsumerSettings
from sa_outbox.consumer.upkeep.command import prune
from sa_outbox.dashboard import Dashboard
from sa_outbox.dashboard.urls import router
from sa_outbox.database.rights import KINDS
from sa_outbox.database.tables import tables
from sa_outbox.observe import DatabaseAway, Observation, RetentionRefused, RowsPurged
from sa_outbox.operations.crons import run_cron
from sa_outbox.operations.operator import Operator
from sa_outbox.settings import Names
from tests.support.dashboard import TOKEN, Visiting
from tests.support.server import administer, temporary_database

pytestmark = pytest.mark.anyio
NAMES = Names(schema="events")
TABLES = tables(NAMES)
PASSWORD = "known"
BASE = 3_500_000


class Place:
    """A database whose tables are in a schema of their own, with a role of each kind."""

    def __init__(self, url: URL, suffix: str) -> None:
        self.url = url
        self.suffix = suffix
        self.owner = self.engine_of(url)

    def role(self, kind: str) -> str:
        return f"{kind.replace('-', '_')}_{self.suffix}"

    def url_of(self, kind: str, driver: str = "postgresql") -> URL:
        return self.url.set(drivername=driver, username=self.role(kind), password=PASSWORD)

    def engine_of(self, url: URL) -> Engine:
        return create_engine(url.set(drivername="postgresql+psycopg"), poolclass=NullPool)

    def engine(self, kind: str) -> Engine:
        return self.engine_of(self.url_of(kind))

    def run(self, statement: str, **values: object) -> list[Any]:
        with self.owner.begin() as connection:
            result = connection.execute(text(statement), values)
            return list(result) if result.returns_rows else []

    def command(self, kind: str, *words: str, code: int = 0) -> str:
        url = self.url_of(kind).render_as_string(hide_password=False)
        given = [*words, "--schema", "events"]
        environment = {"SA_OUTBOX_DATABASE_URL": url, "SA_OUTBOX_SECRET_KEY": KEY}
        result = CliRunner().invoke(main, given, env=environment)
        assert result.exit_code == code, result.output
        return result.output


KEY = "4u9MZSJlSdfnYZU5V0RE3pHX8ZKBnl2e8CArR7Tx0bg="


def printed(*words: str) -> str:
    result = CliRunner().invoke(main, ["grants", *words, "--schema", "events"])
    assert result.exit_code == 0, result.output
    return result.stdout


@contextmanager
def making(server_url: str) -> Iterator[Place]:
    suffix = secrets.token_hex(6)  # roles are the server's: other tests see them
    kinds = [*KINDS, "audited-producer", "audited-full-producer"]
    with temporary_database(server_url, "grants") as url:
        place = Place(url, suffix)
        with place.owner.begin() as connection:
            schema.migrate(connection, NAMES)
        for kind in kinds:
            role = place.role(kind)
            place.run(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")
            options = ["--audit"] if kind.startswith("audited-") else []
            statements = printed(kind.removeprefix("audited-"), "--role", role, *options)
            with psycopg.connect(url.render_as_string(hide_password=False)) as plain:
                plain.execute(statements.encode())
        yield place
        place.owner.dispose()
    for kind in kinds:
        drop = psycopg.sql.SQL("DROP ROLE {}").format(psycopg.sql.Identifier(place.role(kind)))
        administer(server_url, drop)


@pytest.fixture(scope="module")
def made(server_url: str) -> Iterator[Place]:
    with making(server_url) as place:
        yield place


@pytest.fixture
def fresh(server_url: str) -> Iterator[Place]:
    """For what changes the partitions."""
    with making(server_url) as place:
        yield place


@pytest.fixture
def place(made: Place) -> Place:
    for table in TABLES.metadata.tables.values():
        if table is not TABLES.meta:
            made.run(f'DELETE FROM events."{table.name}"')
    return made


def outbox_of(audit: bool = False, **options: Any) -> Outbox:
    given = {"notify": "off", "audit": "all" if audit else "off", **options}
    return Outbox(schema="events", **given)


def listen(outbox: Outbox, **options: Any) -> list[Any]:
    got: list[Any] = []

    @outbox.listener("billing", on="order.*", **options)
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload)

    return got


class TestProducers:
    @pytest.mark.parametrize(
        "kind", ["producer", "full-producer", "audited-producer", "audited-full-producer"]
    )
    def test_they_add_events_and_nothing_is_wrong_or_too_wide(
        self, place: Place, kind: str
    ) -> None:
        engine = place.engine(kind)
        maker = outbox_of(kind.startswith("audited")).sessionmaker(engine)

        with maker.begin() as session:
            session.add_event("order.placed", {"n": 1}, key="k", tenant="acme", priority=1)
            session.add_event("order.placed", {"n": 2}, delay=timedelta(hours=1))

        assert len(place.run("SELECT FROM events.outbox")) == 2
        with engine.connect() as connection:
            assert schema.problems(connection, NAMES) == []
            assert schema.warnings(connection, NAMES) == []

    @pytest.mark.parametrize("kind", ["full-producer", "audited-full-producer"])
    def test_a_full_one_uses_keys_status_cancel_and_the_inbox(
        self, place: Place, kind: str
    ) -> None:
        outbox = outbox_of(kind.startswith("audited"))
        listen(outbox, order="none")
        outbox.listener("ordered", on="order.*")(_ignore)
        place.run(
            "INSERT INTO events.outbox_listeners (name, last_processed_id)"
            " VALUES ('billing', 0), ('ordered', 0)"
        )
        with outbox.sessionmaker(place.engine(kind))() as session:
            for _ in range(2):
                event = session.add_event("order.placed", {"n": 1}, idempotency_key="once")
                session.commit()
            first = outbox.status(session, idempotency_key="once", event_type="order.placed")
            assert event.event_id != first.event_id
            assert first.listeners["billing"].state == "pending"

            assert outbox.cancel(session, first.event_id, reason="r")["billing"] == "cancelled"
            later = session.add_event("order.placed", {"n": 2})
            session.commit()
            place.run(
                "INSERT INTO events.outbox_deliveries (listener, position, event_id, event_type,"
                " state, due_at) SELECT 'ordered', id, event_id, event_type, 'scheduled',"
                " now() + interval '1 hour' FROM events.outbox WHERE event_id = :id",
                id=later.event_id,
            )
            answers = outbox.cancel(session, later.event_id)
            assert answers == {"billing": "cancelled", "ordered": "cancelled"}
            taken = session.add_event("order.placed", {"n": 3})
            session.commit()
            place.run(  # other tests of this database have moved the ids far ahead
                "UPDATE events.outbox_listeners SET gaps = '[]', last_processed_id ="
                " (SELECT id FROM events.outbox WHERE event_id = :id)",
                id=taken.event_id,
            )
            place.run(
                "INSERT INTO events.outbox_ranges (listener, last_processed_id, gaps, locked_by,"
                " lease_expires_at) SELECT 'billing', id, jsonb_build_array(jsonb_build_array(id,"
                " id)), 'a', now() + interval '1 hour' FROM events.outbox WHERE event_id = :id",
                id=taken.event_id,
            )
            assert outbox.cancel(session, taken.event_id)["billing"] == "requested"
            status = outbox.status(session, taken.event_id)
            assert status.listeners["billing"].state == "running"
            for is_first in (True, False):
                with outbox.inbox.once(session, "1", consumer="shop") as first_time:
                    assert first_time is is_first
                session.commit()


async def _ignore(event: Event[Any]) -> None:
    pass


DENIED = {
    "an id that it chose": "INSERT INTO events.outbox (id, event_id, event_type, payload)"
    " OVERRIDING SYSTEM VALUE VALUES (10, gen_random_uuid(), 'a', '{}')",
    "a partition": "INSERT INTO events.outbox_p3 (id, event_id, event_type, payload)"
    " OVERRIDING SYSTEM VALUE VALUES (10, gen_random_uuid(), 'a', '{}')",
    "a changed event": "UPDATE events.outbox SET payload = '{}'",
    "a deleted event": "DELETE FROM events.outbox",
    "the sequence": "SELECT setval('events.outbox_id_seq', 10)",
    "the version": "UPDATE events.outbox_meta SET schema_version = 9",
    "a partition dropped": "DROP TABLE events.outbox_p3",
    "a trigger": "CREATE RULE r AS ON INSERT TO events.outbox DO INSTEAD NOTHING",
}
PAYLOADS = {
    "payloads": "SELECT payload FROM events.outbox",
    "whole events": "SELECT * FROM events.outbox",
    "payloads of dead letters": "SELECT payload FROM events.outbox_dead_letters",
    "secrets": "SELECT secrets FROM events.outbox_endpoints",
}
ENDPOINTS = {
    "an endpoint's URL": "UPDATE events.outbox_endpoints SET url = 'https://evil.example'",
    "an endpoint's secret": "UPDATE events.outbox_endpoints SET secrets = '[]'",
    "an endpoint": "INSERT INTO events.outbox_endpoints (name, url) VALUES ('a', 'https://a.b')",
    "an endpoint's end": "DELETE FROM events.outbox_endpoints",
}
REFUSED = {
    "producer": DENIED | PAYLOADS | ENDPOINTS,
    "full-producer": DENIED | PAYLOADS | ENDPOINTS,
    "audited-full-producer": DENIED | PAYLOADS | ENDPOINTS,
    "consumer": DENIED | ENDPOINTS,
    "operator": DENIED,
    "dashboard": DENIED
    | ENDPOINTS
    | {
        "an event": "INSERT INTO events.outbox (event_id, event_type, payload)"
        " VALUES (gen_random_uuid(), 'a', '{}')",
        "a pause": "UPDATE events.outbox_listeners SET paused_at = now()",
        "secrets": PAYLOADS["secrets"],
    },
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_a_role_has_no_need_of_is_denied(place: Place, kind: str) -> None:
    engine = place.engine(kind)
    for what, statement in REFUSED[kind].items():
        with engine.connect() as connection, pytest.raises(DBAPIError) as refused:
            connection.execute(text(statement))
        code = getattr(refused.value.orig, "sqlstate", None)
        assert code == "42501", f"{kind}: {what}: {refused.value}"


@pytest.mark.parametrize("kind", ["producer", "full-producer", "consumer"])
def test_copy_with_ids_is_denied(place: Place, kind: str) -> None:
    url = place.url_of(kind).render_as_string(hide_password=False)
    copy = "COPY events.outbox (id, event_id, event_type, payload) FROM STDIN"
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        with pytest.raises(psycopg.errors.InsufficientPrivilege), cursor.copy(copy):
            pass
        connection.rollback()


async def test_a_consumer_does_everything_that_consumers_do(place: Place) -> None:
    outbox = outbox_of(audit=True, alerts="on")
    outbox.webhooks()
    outbox.cron("* * * * *", "order.wanted", {"n": 0}, time_zone="UTC")
    retry = RetryPolicy(attempts=2, base=timedelta(milliseconds=1), jitter=False)
    done: list[Any] = []

    def handler(name: str) -> Callable[[Event[Any]], Any]:
        async def handle(event: Event[Any]) -> None:
            if event.payload["n"] == 13:
                raise ValueError("no")
            event.leave_result("somewhere")
            done.append((name, event.payload["n"]))

        return handle

    for order in ("key", "total", "none"):
        outbox.listener(order, on="order.*", order=order, retry=retry)(handler(order))
    outbox.listener("divided", on="order.*", partitions=2, retry=retry)(handler("divided"))
    with outbox.sessionmaker(place.engine("audited-full-producer")).begin() as session:
        for n in (1, 13, 2):
            session.add_event("order.placed", {"n": n}, key="k")
        session.add_event("order.placed", {"n": 3}, run_at=datetime.now(UTC))
    told: list[Observation] = []
    consumer = Consumer(outbox, place.url_of("consumer"), observers=[told.append])

    await consumer.drain()
    place.run("UPDATE events.outbox_crons SET last_tick = clock_timestamp() - interval '1 hour'")
    await consumer.drain()

    for name in ("key", "total", "none", "divided"):
        assert sorted(n for each, n in done if each == name) == [0, 1, 2, 3]
    assert len(place.run("SELECT FROM events.outbox_dead_letters")) == 4
    assert [each for each in told if isinstance(each, DatabaseAway)] == []
    with place.engine("consumer").connect() as connection:
        assert schema.problems(connection, NAMES) == []
        assert schema.warnings(connection, NAMES) == []


async def test_upkeep_of_a_consumer_that_owns_nothing_says_so_and_does_the_rest(
    place: Place,
) -> None:
    old = "now() - interval '90 days'"
    place.run("INSERT INTO events.outbox_listeners (name) VALUES ('billing')")
    place.run(
        "INSERT INTO events.outbox_inbox (consumer, message_id, expires_at)"
        f" VALUES ('a', '1', {old})"
    )
    place.run(
        "INSERT INTO events.outbox_idempotency_keys (event_type, key, event_id, expires_at)"
        f" VALUES ('a', 'b', gen_random_uuid(), {old})"
    )
    place.run(
        "INSERT INTO events.outbox_results (event_id, listener, result_ref, expires_at)"
        f" VALUES (gen_random_uuid(), 'a', 'b', {old})"
    )
    place.run(f"INSERT INTO events.outbox_audit (action, recorded_at) VALUES ('a', {old})")
    place.run(
        "INSERT INTO events.outbox_dead_letters (listener, position, event_id, event_type, payload,"
        " event_created_at, reason, resolution, resolved_at)"
        f" VALUES ('a', 1, gen_random_uuid(), 'a', '{{}}', {old}, 'attempts', 'fixed', {old})"
    )
    told: list[Observation] = []
    month = timedelta(days=30)
    settings = ConsumerSettings(retention=month, audit_retention=month, dead_letter_retention=month)

    await prune(outbox_of(), place.url_of("consumer"), settings, told.append)

    assert [each for each in told if isinstance(each, RetentionRefused)]
    purged = {each.table for each in told if isinstance(each, RowsPurged)}
    emptied = ("inbox", "idempotency_keys", "results", "audit", "dead_letters")
    assert purged == {f"outbox_{each}" for each in emptied}


def test_maintenance_migrates_and_makes_and_drops_partitions(fresh: Place) -> None:
    maintenance, adder = "maintenance", outbox_of().sessionmaker(fresh.engine("producer"))
    with adder.begin() as session:
        session.add_event("order.placed", {"n": 1})
    fresh.run("UPDATE events.outbox SET created_at = now() - interval '90 days'")
    fresh.run("SELECT setval('events.outbox_id_seq', 3000001)")
    fresh.run("INSERT INTO events.outbox_listeners (name, last_processed_id) VALUES ('a', 3000001)")

    assert "already at version" in fresh.command(maintenance, "migrate")
    assert "nothing is wrong" in fresh.command(maintenance, "verify")
    fresh.command(maintenance, "prune", "--retention", "30")

    partitions = "SELECT relname FROM pg_class WHERE relname LIKE 'outbox_p_' ORDER BY 1"
    names = [row.relname for row in fresh.run(partitions)]
    assert {"outbox_p0", "outbox_p1", "outbox_p2"}.isdisjoint(names)
    assert "outbox_p4" in names
    owner = "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class WHERE relname LIKE 'outbox%'"
    assert fresh.run(owner) == [(fresh.role(maintenance),)]
    with adder.begin() as session:
        session.add_event("order.placed", {"n": 2})
    got = _drained(fresh, outbox_of())
    assert got == [{"n": 2}]


def _drained(place: Place, outbox: Outbox) -> list[Any]:
    got = listen(outbox)
    anyio.run(Consumer(outbox, place.url_of("consumer")).drain)
    return got


@pytest.fixture
def stocked(place: Place) -> Place:
    """Ten events from BASE + 1 on, three dead letters and a range."""
    place.run(f"SELECT setval('events.outbox_id_seq', {BASE})")
    place.run(
        "INSERT INTO events.outbox (event_id, event_type, key, payload)"
        " SELECT gen_random_uuid(), 'order.placed', 'k', '{}' FROM generate_series(1, 10)"
    )
    place.run(
        "INSERT INTO events.outbox_listeners (name, last_processed_id)"
        f" SELECT name, {BASE} FROM unnest(ARRAY['mail', 'strict', 'old']) AS name"
    )
    place.run(
        "INSERT INTO events.outbox_dead_letters (listener, position, event_id, event_type, key,"
        " payload, event_created_at, reason) SELECT 'mail', id, event_id, event_type, key, payload,"
        f" created_at, 'attempts' FROM events.outbox WHERE id < {BASE + 4}"
    )
    place.run(
        "INSERT INTO events.outbox_ranges (listener, last_processed_id, gaps)"
        f" VALUES ('mail', {BASE + 5}, '[[{BASE + 5}, {BASE + 5}]]')"
    )
    return place


OF_OTHERS = {"migrate", "prune", "events erase", "dashboard"}
"""Commands that work on the database and are not an operator's, or have a test of their own."""


def commands(group: click.Group = main, *path: str) -> Iterator[tuple[str, ...]]:
    """Those that work on a database."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield from commands(found, *path, name)
        elif found is not None and any(each.name == "url" for each in found.params):
            yield (*path, name)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A program with a cron, as --app."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "program_of_an_operator.py").write_text(
        "from sa_outbox import Outbox\n"
        'outbox = Outbox(schema="events", notify="off", audit="all")\n'
        'outbox.cron("0 3 * * *", "order.wanted", time_zone="UTC")\n'
    )
    return "program_of_an_operator:outbox"


def test_an_operator_has_every_command(stocked: Place, program: str) -> None:
    letters = [
        row.id for row in stocked.run("SELECT id FROM events.outbox_dead_letters ORDER BY 1")
    ]
    first, second, third = map(str, letters)
    left = {each for each in commands() if " ".join(each) not in OF_OTHERS}

    def run(*words: str, code: int = 0) -> str:
        left.difference_update({words[:1], words[:2]})
        return stocked.command("operator", *words, code=code)

    assert "nothing is wrong" in run("verify")
    assert "mail" in run("status")
    assert "mail" in run("top")
    run("queues", "list")
    run("listeners", "list")
    run("events", "list")
    assert "order.placed" in run("events", "show", str(BASE + 2))
    run("dead-letters", "list")
    run("dead-letters", "show", first)
    run("dead-letters", "replay", first)
    waiting = f"{BASE + 1}:mail"
    run("deliveries", "list")
    stocked.run("UPDATE events.outbox_deliveries SET due_at = due_at + interval '1 hour'")
    run("deliveries", "retry", waiting)
    run("deliveries", "cancel", waiting, "--yes")
    run("dead-letters", "edit", second, "--payload", '{"n": 1}')
    run("dead-letters", "discard", second, third, "--yes")
    run("listeners", "pause", "mail")
    run("listeners", "resume", "mail")
    run("listeners", "skip", "strict", "--to-now", "--yes")
    run("listeners", "rewind", "mail", "--to-id", str(BASE + 2), "--yes")
    run("listeners", "retire", "old", "--yes")
    run("repartition", "strict", "1")
    run("audit", "--actor", "nobody")
    run("durations")
    run("crons", "list")
    stocked.run("INSERT INTO events.outbox_crons (name, last_tick) VALUES ('order.wanted', now())")
    run("crons", "run", "order.wanted", "--app", program)
    run("endpoints", "add", "acme", "https://example.com/hooks", "--on", "order.*")
    run("endpoints", "list")
    run("endpoints", "change", "acme", "--on", "order.placed")
    nobody = ("--allow", "127.0.0.1/32", "--port", "1")
    run("endpoints", "move", "acme", "http://127.0.0.1:1/", *nobody)
    assert "ConnectError" in run("endpoints", "test", "acme", *nobody, code=1)
    run("endpoints", "reseal")
    run("endpoints", "rotate", "acme")
    run("endpoints", "disable", "acme")
    run("endpoints", "enable", "acme")
    run("endpoints", "remove", "acme", "--yes")
    stocked.run("UPDATE events.outbox_meta SET database_oid = 1")
    run("adopt", "--yes")
    assert "not-examined" not in run("doctor", code=1)
    assert left == set()


def test_an_operator_runs_a_cron_now_and_does_not_move_it(stocked: Place) -> None:
    outbox = outbox_of(audit=True)
    outbox.cron("0 3 * * *", "order.wanted", time_zone="UTC")
    stocked.run("INSERT INTO events.outbox_crons (name, last_tick) VALUES ('order.wanted', now())")

    with stocked.engine("operator").begin() as connection:
        event_id = run_cron(
            connection,
            TABLES,
            outbox.crons,
            "order.wanted",
            Operator(who="grace"),
            records_added=True,
        )

    assert stocked.run("SELECT FROM events.outbox WHERE event_id = :id", id=event_id)
    moved = "UPDATE events.outbox_crons SET last_tick = now()"
    with stocked.engine("operator").connect() as connection, pytest.raises(DBAPIError):
        connection.execute(text(moved))


def test_maintenance_erases_an_event_and_an_operator_may_not(stocked: Place) -> None:
    words = ("events", "erase", str(BASE + 2), "--yes")

    stocked.command("operator", *words, code=1)
    stocked.command("maintenance", *words)

    found = "SELECT count(*) FROM events.outbox WHERE id = " + str(BASE + 2)
    assert stocked.run(found) == [(0,)]


async def test_an_operator_has_every_button_of_the_dashboard(stocked: Place) -> None:
    first, second, third = (
        row.id for row in stocked.run("SELECT id FROM events.outbox_dead_letters ORDER BY 1")
    )
    parked = [f"{BASE + n}:strict" for n in (6, 7)]
    stocked.run(
        "INSERT INTO events.outbox_deliveries (listener, position, event_id, event_type, state,"
        " due_at) SELECT 'strict', id, event_id, event_type, 'parked', now() + interval '1 hour'"
        f" FROM events.outbox WHERE id IN ({BASE + 6}, {BASE + 7})"
    )
    stocked.run("INSERT INTO events.outbox_endpoints (name, url) VALUES ('acme', 'https://a.b')")
    stocked.run("INSERT INTO events.outbox_crons (name, last_tick) VALUES ('order.wanted', now())")
    outbox = outbox_of(audit=True)
    outbox.cron("0 3 * * *", "order.wanted", time_zone="UTC")
    engine = create_async_engine(stocked.url_of("operator", "postgresql+asyncpg"))
    dashboard = Dashboard(outbox, engine, token=TOKEN)
    routes: list[Any] = list(router(dashboard, dashboard.running).routes)
    left = {each.path for each in routes if "POST" in each.methods} - {"/login", "/logout"}
    letter = "/dead-letters/{id:int}"

    async with Visiting(dashboard) as grace:
        await grace.sign_in()

        async def press(path: str, id_: object = None, **fields: Any) -> None:
            left.discard(path)
            answer = await grace.post(path.replace("{id:int}", str(id_)), **fields)
            changes = path.rpartition("/")[2] not in ("confirm", "compare", "edit-again")
            assert answer.status_code == (303 if changes else 200), (path, fields, answer.text)

        await press("/dead-letters/confirm", act="discard-all", listener="mail")
        await press(f"{letter}/compare", first, payload='{"n": 9}')
        await press(f"{letter}/edit-again", first, payload='{"n": 9}')
        await press(f"{letter}/edit", first, payload='{"n": 9}', edits="0", then="replay")
        await press("/dead-letters/act", act="replay", id=str(second))
        await press("/dead-letters/act", act="discard", id=str(third))
        await press("/deliveries/confirm", act="retry", id=parked[0])
        await press("/deliveries/act", act="retry", id=parked[0])
        await press("/deliveries/act", act="cancel", id=parked[1])
        await press("/listener/pause", name="mail")
        await press("/listener/resume", name="mail")
        await press("/listener/confirm", name="mail", act="rewind", to="beginning")
        await press("/listener/move", name="mail", act="rewind", to="beginning")
        await press("/listener/move", name="strict", act="skip-event", to=str(BASE + 8))
        await press("/listener/move", name="strict", act="skip", to="now")
        await press("/crons/confirm", name="order.wanted")
        (seen,) = stocked.run("SELECT updated_at FROM events.outbox_crons")
        await press("/crons/run", name="order.wanted", seen=seen.updated_at.isoformat())
        await press("/endpoint/disable", name="acme")
        await press("/endpoint/enable", name="acme")
    await engine.dispose()

    assert left == set()


async def test_a_dashboard_shows_every_page_and_status_tells(stocked: Place) -> None:
    engine = create_async_engine(stocked.url_of("dashboard", "postgresql+asyncpg"))
    letter = stocked.run("SELECT min(id) FROM events.outbox_dead_letters")[0][0]
    stocked.run("INSERT INTO events.outbox_endpoints (name, url) VALUES ('acme', 'https://a.b')")
    dashboard = Dashboard(outbox_of(), engine, token=TOKEN, read_only=True)
    pages = ["/", "/listeners", "/dead-letters", f"/dead-letters/{letter}"]
    async with Visiting(dashboard) as grace:
        await grace.sign_in()
        pages += ["/events", f"/events/{BASE + 2}", "/deliveries", "/audit", "/durations"]
        for page in [*pages, "/crons", "/endpoints", "/endpoint?name=acme"]:
            assert (await grace.see(page)).status_code == 200, page
    await engine.dispose()
    for command in ("status", "top"):
        assert "mail" in await anyio.to_thread.run_sync(stocked.command, "dashboard", command)


def test_a_monitor_reads_the_backlog_and_nothing_else(stocked: Place) -> None:
    monitor = stocked.engine("monitor")
    with monitor.connect() as connection:
        found = connection.execute(
            text("SELECT listener, dead_letters FROM events.outbox_backlog WHERE dead_letters > 0")
        )
        assert {row.listener for row in found} == {"mail"}
        for table in TABLES.metadata.tables.values():
            connection.rollback()
            with pytest.raises(DBAPIError, match="permission denied"):
                connection.execute(text(f'SELECT FROM events."{table.name}"'))
    monitor.dispose()


def test_rights_are_printed_for_every_kind_and_a_role_goes_with_one() -> None:
    everything = printed()

    assert all(f"-- {kind}:" in everything for kind in KINDS)
    assert '"outbox_full_producer"' in everything
    refused = CliRunner().invoke(main, ["grants", "--role", "shop"])
    assert refused.exit_code == 2
    assert "one kind" in refused.output
    prefixed = CliRunner().invoke(main, ["grants", "consumer", "--prefix", "ob"]).stdout
    assert 'ON "ob_id_seq" TO "ob_consumer"' in prefixed
