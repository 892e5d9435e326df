"""What was done, and how long handlers took: as pages, and as commands."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import anyio
import pytest
from click.testing import CliRunner
from sqlalchemy import URL, Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sa_outbox import Event, Outbox, RetryPolicy
from sa_outbox.cli import main
from sa_outbox.consumer import Consumer
from sa_outbox.operations import audit as reading
from sa_outbox.operations.audit import AuditFilter, AuditPage, list_audit
from sa_outbox.operations.durations import handler_durations
from tests.support.dashboard import Visiting, dashboard_of

pytestmark = pytest.mark.anyio

OUTBOX = Outbox(notify="off")
FIRST = UUID(int=7)
RECORDS = """
INSERT INTO outbox_audit (action, event_id, event_type, listener, actor_type, actor_id, detail)
SELECT CASE WHEN n % 2 = 0 THEN 'failed' ELSE 'paused' END,
    CASE WHEN n % 5 = 0 THEN :event_id END, 'order.placed', 'mail', 'operator',
    'u' || n % 3, jsonb_build_object('why', 'number ' || n)
FROM generate_series(1, :count) AS n
"""


@pytest.fixture
def recorded(engine: Engine) -> Engine:
    """Twenty records: half are failures, every fifth of one event, by three operators."""
    with engine.begin() as connection:
        connection.execute(text(RECORDS), {"count": 20, "event_id": FIRST})
    return engine


@pytest.fixture
async def async_engine(migrated_url: URL, engine: Engine) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(migrated_url.set(drivername="postgresql+asyncpg"))
    yield made
    await made.dispose()


@pytest.fixture
async def grace(recorded: Engine, async_engine: AsyncEngine) -> AsyncIterator[Visiting]:
    async with Visiting(dashboard_of(OUTBOX, async_engine, page_size=8)) as visiting:
        await visiting.sign_in()
        yield visiting


def audited(engine: Engine, wanted: AuditFilter | None = None, **options: Any) -> AuditPage:
    with engine.connect() as connection:
        return list_audit(connection, OUTBOX.tables, wanted, **options)


def command(url: URL, *words: str) -> str:
    environment = {"SA_OUTBOX_DATABASE_URL": url.render_as_string(hide_password=False)}
    result = CliRunner().invoke(main, list(words), env=environment)
    assert result.exit_code == 0, result.output
    return result.stdout


def numbers(page: AuditPage) -> list[int]:
    return [int(str(each.detail["why"]).split()[-1]) for each in page.records]


def test_each_filter_leaves_what_it_says_newest_first(recorded: Engine) -> None:
    def found(**wanted: Any) -> list[int]:
        return numbers(audited(recorded, AuditFilter(**wanted)))

    assert found() == list(range(20, 0, -1))
    assert found(action="failed") == list(range(20, 0, -2))
    assert found(event_id=FIRST) == [20, 15, 10, 5]
    assert found(event_id=FIRST, action="paused") == [15, 5]
    assert found(actor="u0", listener="mail") == [18, 15, 12, 9, 6, 3]
    assert found(listener="zip") == []


def test_pages_follow_by_key_also_where_few_of_those_examined_match(
    recorded: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_EXAMINED", 3)
    got: list[int] = []
    before = None
    for _ in range(20):
        page = audited(recorded, AuditFilter(action="failed"), before=before, limit=2)
        got += numbers(page)
        before = page.next_before
        if before is None:
            break

    assert got == list(range(20, 0, -2))


def test_a_detail_that_is_no_object_is_shown_as_text(recorded: Engine) -> None:
    with recorded.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO outbox_audit (action, recorded_at, detail)"
                " VALUES ('odd', 'infinity', '[1, 2]')"
            )
        )

    (record,) = audited(recorded, AuditFilter(action="odd")).records

    assert record.detail == {"detail": "[1, 2]"}
    assert record.recorded_at is None


@pytest.fixture
def of_a_project(engine: Engine) -> None:
    """What a consumer's audit has of an event with everything that an origin may have."""
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO outbox_audit (action, event_id, event_type, tenant, project_id,"
                " actor_type, actor_id, request_id, correlation_id) VALUES ('enqueued', :id,"
                " 'order.placed', 'acme', 'p-1', 'user', 'ada', 'req-1', 'c-1')"
            ),
            {"id": FIRST},
        )


@pytest.mark.usefixtures("of_a_project")
async def test_a_record_says_whose_event_it_is_and_what_it_belongs_to(
    engine: Engine, migrated_url: URL, grace: Visiting
) -> None:
    whose = {"tenant": "acme", "project_id": "p-1", "actor_id": "ada", "request_id": "req-1"}
    whose |= {"correlation_id": "c-1"}
    wanted = ("audit", "--action", "enqueued")

    (record,) = audited(engine, AuditFilter(action="enqueued")).records
    said = await anyio.to_thread.run_sync(command, migrated_url, *wanted, "--json")
    shown = await anyio.to_thread.run_sync(command, migrated_url, *wanted)
    page = (await grace.see("/audit?action=enqueued")).text

    assert {name: getattr(record, name) for name in whose} == whose
    assert whose.items() <= json.loads(said)["records"][0].items()
    assert "acme / p-1" in shown
    assert [each for each in whose.values() if each not in page] == []


async def test_the_page_filters_by_what_there_is_and_leads_to_the_next(grace: Visiting) -> None:
    first = (await grace.see("/audit?action=failed")).text

    assert '<option value="failed" selected>' in first
    assert '<option value="paused">' in first
    assert '<option value="u2">' in first  # an actor to choose from
    assert f"/events/{FIRST}" in first
    assert "number 20" in first
    assert "number 19" not in first
    following = first.split('rel="next"')[0].rpartition('href="')[2].partition('"')[0]
    second = (await grace.see(following.replace("&amp;", "&"))).text
    assert "number 4" in second
    assert "number 20" not in second
    assert (await grace.see("/audit?event=nonsense")).status_code == 400
    by_event = (await grace.see(f"/audit?event={FIRST}")).text
    assert by_event.count('role="row"') == 1 + 4


def test_the_command_filters_and_says_where_it_continues(
    recorded: Engine, migrated_url: URL
) -> None:
    said = command(migrated_url, "audit", "--actor", "u1", "--limit", "2", "--json")

    found = json.loads(said)
    assert [each["detail"]["why"] for each in found["records"]] == ["number 19", "number 16"]
    beyond = ("--actor", "u1", "--before", str(found["next_before"]))
    assert len(json.loads(command(migrated_url, "audit", *beyond, "--json"))["records"]) == 5
    assert "paused" in command(migrated_url, "audit", *beyond)


async def test_durations_are_those_of_the_attempts_that_the_audit_has(
    engine: Engine, async_engine: AsyncEngine, migrated_url: URL
) -> None:
    outbox = Outbox(notify="off", audit="all")

    @outbox.listener("billing", on="order.placed", retry=RetryPolicy(attempts=1))
    async def bill(event: Event[Any]) -> None:
        if event.payload == 3:
            raise ValueError("no")

    with outbox.sessionmaker(engine).begin() as session:
        for number in range(4):
            session.add_event("order.placed", number)
    await Consumer(outbox, async_engine).drain()
    with engine.begin() as connection:
        # The clock does not decide this test: the attempts took 1, 2, 3 and 4 seconds.
        connection.execute(
            text(
                "UPDATE outbox_audit AS a SET recorded_at = timestamptz '2026-01-01 00:00Z'"
                " + CASE WHEN action = 'started' THEN interval '0'"
                " ELSE make_interval(secs => (SELECT count(DISTINCT b.event_id) FROM outbox_audit b"
                " WHERE b.event_id <= a.event_id)) END"
            )
        )
        seen = handler_durations(connection, outbox.tables)

    (found,) = seen.found
    assert (found.listener, found.event_type) == ("billing", "order.placed")
    assert (found.attempts, found.failed) == (4, 1)
    assert (found.p50, found.longest) == (2.5, 4.0)
    assert 3.8 < found.p95 <= found.p99 < found.longest
    async with Visiting(dashboard_of(outbox, async_engine)) as grace:
        await grace.sign_in()
        page = (await grace.see("/durations")).text
    assert "2.5 s" in page
    assert "4.0 s" in page
    shown = await anyio.to_thread.run_sync(command, migrated_url, "durations")
    assert "order.placed" in shown


def test_an_attempt_of_which_nobody_knows_the_end_has_no_duration(engine: Engine) -> None:
    record = (
        "INSERT INTO outbox_audit (action, event_id, event_type, listener, attempt, recorded_at,"
        " detail) VALUES (:action, :id, 'a', 'l', 1, timestamptz '2026-01-01 00:00Z'"
        " + make_interval(secs => :at), cast(:detail AS jsonb))"
    )
    with engine.begin() as connection:
        for action, at, detail in (
            ("started", 0, '{"outcome": "unknown"}'),  # its process vanished
            ("started", 100, "{}"),
            ("succeeded", 102, "{}"),
        ):
            values = {"action": action, "at": at, "detail": detail, "id": FIRST}
            connection.execute(text(record), values)

        (found,) = handler_durations(connection, OUTBOX.tables).found

    assert (found.attempts, found.longest) == (1, 2.0)


async def test_without_an_audit_the_page_says_where_durations_are(grace: Visiting) -> None:
    page = (await grace.see("/durations")).text

    assert "sa_outbox_handler_seconds" in page
    assert "<table" not in page
