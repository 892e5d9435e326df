"""What waits, as the dashboard and the commands show it, and what they do about it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import URL, Engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import Outbox, event_context
from sa_outbox.cli import main
from sa_outbox.operations import deliveries as listing
from sa_outbox.operations.deliveries import DeliveryFilter, DeliveryId, list_deliveries
from sa_outbox.sql.people import deliveries as sql
from tests.support.dashboard import Visiting, dashboard_of

pytestmark = pytest.mark.anyio

OUTBOX = Outbox(notify="off")
WAITING = """
INSERT INTO outbox_deliveries
    (listener, position, event_id, event_type, key, tenant, state, due_at, attempts, last_error)
SELECT 'mail', n, gen_random_uuid(), 'order.placed', 'k' || n, 'acme',
    CASE n % 4 WHEN 0 THEN 'scheduled' WHEN 3 THEN 'behind' ELSE 'parked' END,
    CASE WHEN n % 4 <> 3 THEN now() + interval '1 hour' END, n % 4, 'no answer'
FROM generate_series(1, :count) AS n
"""


@pytest.fixture
def waiting(engine: Engine) -> Engine:
    """Eight deliveries of mail, two of each of four kinds, and a scheduled one of zip."""
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO outbox_listeners (name) VALUES ('mail'), ('zip')"))
        connection.execute(text(WAITING), {"count": 8})
        connection.execute(
            text(
                "INSERT INTO outbox_deliveries (listener, position, event_id, event_type, state,"
                " due_at) VALUES ('zip', 3, gen_random_uuid(), 'report.made', 'scheduled',"
                " 'infinity')"
            )
        )
    return engine


@pytest.fixture
async def grace(waiting: Engine, migrated_url: URL) -> AsyncIterator[Visiting]:
    made = create_async_engine(migrated_url.set(drivername="postgresql+asyncpg"))
    async with Visiting(dashboard_of(OUTBOX, made)) as visiting:
        await visiting.sign_in()
        yield visiting
    await made.dispose()


def ids(engine: Engine, wanted: DeliveryFilter, **options: Any) -> list[str]:
    with engine.connect() as connection:
        page = list_deliveries(connection, OUTBOX.tables, wanted, **options)
    return [str(each.id) for each in page.deliveries]


def test_each_filter_leaves_what_it_says(waiting: Engine) -> None:
    def found(**wanted: Any) -> list[str]:
        return ids(waiting, DeliveryFilter(**wanted))

    assert len(found()) == 9
    assert found(state="behind") == ["3:mail", "7:mail"]
    assert found(state="scheduled") == ["4:mail", "8:mail", "3:zip"]
    assert found(listener="zip") == found(event_type="report.made") == ["3:zip"]
    assert found(failed=True) == ["1:mail", "2:mail", "5:mail", "6:mail"]
    assert found(tenant="acme", key="k2") == ["2:mail"]


def test_pages_follow_each_other_even_where_few_of_those_examined_match(
    waiting: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MAX_EXAMINED", 3)
    found, after, pages = [], None, 0
    with waiting.connect() as connection:
        while True:
            page = list_deliveries(
                connection, OUTBOX.tables, DeliveryFilter(state="scheduled"), after=after, limit=1
            )
            found += [str(each.id) for each in page.deliveries]
            after, pages = page.next_after, pages + 1
            if after is None:
                break

    assert found == ["4:mail", "8:mail", "3:zip"]
    assert pages > 3


def test_a_page_reads_the_primary_key_in_its_order_among_many(waiting: Engine) -> None:
    values = {
        "after_listener": "mail", "after_position": 5000, "examined": 1000, "limit": 51,
        "event_type": "order.placed",
    }  # fmt: skip
    with waiting.begin() as connection:
        connection.execute(text("DELETE FROM outbox_deliveries"))
        connection.execute(text(WAITING), {"count": 100_000})
        connection.execute(text("ANALYZE outbox_deliveries"))
        statement = sql.waiting(OUTBOX.tables, ["event_type"])
        explain = text(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.text}").bindparams(
            *(statement._bindparams[name] for name in [*values, "now"])
        )
        (plan,) = connection.execute(explain, values).scalar_one()
        connection.rollback()

    read = _scan(plan["Plan"], "outbox_deliveries_pkey")
    assert read is not None, plan
    assert read["Actual Rows"] < 200


def _scan(node: Any, index: str) -> Any:
    if node.get("Index Name") == index:
        return node
    return next(filter(None, (_scan(each, index) for each in node.get("Plans", []))), None)


async def test_the_page_offers_what_exists_and_keeps_what_was_asked(grace: Visiting) -> None:
    page = (await grace.see("/deliveries?state=behind&listener=gone")).text
    everything = (await grace.see("/deliveries")).text

    assert '<option value="mail">mail</option>' in page
    assert '<option value="gone" selected>gone</option>' in page
    assert '<option value="behind" selected>behind</option>' in page
    assert "No delivery waits here." in page
    assert '<option value="report.made"></option>' in everything
    assert everything.count('type="checkbox"') == 9


async def test_chosen_ones_are_retried_once_and_the_rest_says_why_not(
    grace: Visiting, waiting: Engine
) -> None:
    chosen = ["1:mail", "3:mail", "77:mail"]
    form = {"form_token": grace.form_token, "act": "retry", "id": chosen}

    asked = await grace.client.post("/deliveries/confirm", data=form)
    before = ids(waiting, DeliveryFilter(state="parked"))
    first = await grace.client.post("/deliveries/act", data={**form, "why": "up again"})
    second = await grace.client.post("/deliveries/act", data=form)

    assert "Retry 3 deliveries?" in asked.text
    assert before == ["1:mail", "2:mail", "5:mail", "6:mail"]
    assert first.headers["location"] == "/deliveries?retried=1&behind=1&done=1"
    assert second.headers["location"] == "/deliveries?due=1&behind=1&done=1"
    said = (await grace.see(second.headers["location"])).text
    assert "1 unchanged: already due, so a process may just be attempting it" in said
    with waiting.connect() as connection:
        audit = connection.execute(text("SELECT actor_id, detail FROM outbox_audit")).all()
        due = "SELECT position FROM outbox_deliveries WHERE due_at <= clock_timestamp()"
        assert connection.execute(text(due)).scalars().all() == [1]
    assert [(each.actor_id, each.detail["why"]) for each in audit] == [("grace", "up again")]


async def test_nonsense_chooses_nothing(grace: Visiting) -> None:
    for fields in ({"id": "mail"}, {"id": "x:mail"}, {"id": "1:"}, {}, {"act": "eat", "id": "1:a"}):
        answer = await grace.post("/deliveries/act", **{"act": "cancel", **fields})
        assert answer.status_code == 400, fields
    assert (await grace.see("/deliveries?after=9")).status_code == 400


def test_the_commands_list_retry_and_cancel(
    waiting: Engine, migrated_url: URL, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = migrated_url.set(drivername="postgresql").render_as_string(hide_password=False)
    monkeypatch.setenv("SA_OUTBOX_DATABASE_URL", url)

    def run(*words: str, code: int = 0) -> Any:
        result = CliRunner().invoke(main, ["deliveries", *words])
        assert result.exit_code == code, result.output
        return result

    page = run("list", "--limit", "3", "--state", "parked", "--json").stdout
    listed = json.loads(page)
    more = run("list", "--limit", "3")
    by = ("--by", "ann")

    assert [each["position"] for each in listed["deliveries"]] == [1, 2, 5]
    assert "--after 3:mail" in more.stderr
    assert "4:mail" in run("list", "--limit", "3", "--after", "3:mail").stdout
    assert run("retry", "1:mail", *by).stdout == "1:mail: due now\n"
    assert "already due" in run("retry", "1:mail", *by, code=1).stdout
    assert run("retry", "--all", "--listener", "mail", *by).stdout.splitlines() == [
        "1 delivery: unchanged: already due, so a process may just be attempting it",
        "3 deliveries: due now",
    ]
    assert run("cancel", "3:zip", "--yes", *by).stdout == "3:zip: cancelled\n"
    assert ids(waiting, DeliveryFilter(state="cancelled")) == ["3:zip"]
    run("retry", code=2)
    assert "did you mean 'mail'" in run("list", "--listener", "mial", code=1).output
    assert "POSITION:LISTENER" in run("retry", "mail", code=2).output


def test_who_cancels_by_hand_is_recorded_and_not_whoever_added_the_event(
    waiting: Engine, migrated_url: URL, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = migrated_url.set(drivername="postgresql").render_as_string(hide_password=False)
    monkeypatch.setenv("SA_OUTBOX_DATABASE_URL", url)
    ada = event_context(tenant="acme", actor_type="user", actor_id="ada", request_id="r-1")
    with ada, OUTBOX.sessionmaker(waiting).begin() as session:
        session.add_event("report.made")
    with waiting.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO outbox_deliveries (listener, position, event_id, event_type, state,"
                " due_at) SELECT 'zip', id, event_id, event_type, 'scheduled', 'infinity'"
                " FROM outbox"
            )
        )

    words = ["deliveries", "cancel", "1:zip", "--yes", "--by", "ann", "--why", "too late"]
    result = CliRunner().invoke(main, words)

    assert result.stdout == "1:zip: cancelled\n"
    recorded = "SELECT action, tenant, actor_type, actor_id, request_id, detail FROM outbox_audit"
    with waiting.connect() as connection:
        assert [tuple(each) for each in connection.execute(text(recorded))] == [
            ("cancelled", "acme", "operator", "ann", None, {"reason": "too late"})
        ]


def test_an_id_is_its_own_text() -> None:
    for each in (DeliveryId("a:b", 7), DeliveryId("webhook:acme", 2**60)):
        assert DeliveryId.parse(str(each)) == each
