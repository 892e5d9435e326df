"""Recurring events as a person on call sees them, and running one now."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import URL, Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sa_outbox import Event, Outbox
from sa_outbox.cli import main
from sa_outbox.consumer import Consumer
from tests.support.dashboard import Visiting, dashboard_of

pytestmark = pytest.mark.anyio

LAST = "2026-03-01 02:00:00+00"


class Place:
    """A program with two crons, of which a consumer has registered one, and another's cron."""

    def __init__(self, engine: Engine, async_engine: AsyncEngine) -> None:
        self.engine, self.async_engine = engine, async_engine
        self.outbox = Outbox(notify="off", audit="all")
        self.outbox.cron("0 3 * * *", "sweep", {"deep": True}, time_zone="Europe/Berlin")
        self.outbox.cron("0 0 1 1 *", "yearly", time_zone="UTC", name="new-year")
        self.got: list[Event[Any]] = []

        @self.outbox.listener("sweeper", on="sweep")
        async def sweep(event: Event[Any]) -> None:
            self.got.append(event)

        with engine.begin() as connection:
            for name in ("sweep", "of-another"):
                connection.execute(
                    text("INSERT INTO outbox_crons (name, last_tick) VALUES (:name, :at)"),
                    {"name": name, "at": LAST},
                )

    def rows(self, statement: str) -> list[Any]:
        with self.engine.connect() as connection:
            return list(connection.execute(text(statement)))


@pytest.fixture
async def place(migrated_url: URL, engine: Engine) -> AsyncIterator[Place]:
    made = create_async_engine(migrated_url.set(drivername="postgresql+asyncpg"))
    yield Place(engine, made)
    await made.dispose()


@pytest.fixture
async def grace(place: Place) -> AsyncIterator[Visiting]:
    async with Visiting(dashboard_of(place.outbox, place.async_engine)) as visiting:
        await visiting.sign_in()
        yield visiting


def asked_once_more(page: str) -> dict[str, str]:
    """The fields of the confirmation."""
    fields = re.findall(r'name="(name|seen)" value="([^"]*)"', page)
    return {name: value.replace("&#43;", "+") for name, value in fields}


async def test_the_list_says_when_each_is_due_and_what_is_wrong(grace: Visiting) -> None:
    page = (await grace.see("/crons")).text

    sweep, of_another, new_year = (
        next(row for row in page.split("<tr") if f"<bdi>{name}</bdi>" in row)
        for name in ("sweep", "of-another", "new-year")
    )
    assert "0 3 * * *" in sweep
    assert "Europe/Berlin" in sweep
    assert sweep.count("<time") == 4  # three ticks to come and the last one
    assert "late" in sweep  # of March: nobody consumes
    assert "Run now" in sweep
    assert "not declared here" in of_another
    assert "Run now" not in of_another
    assert "not started" in new_year
    assert "Run now" not in new_year


async def test_running_it_now_adds_one_event_and_leaves_the_schedule(
    place: Place, grace: Visiting
) -> None:
    asked = await grace.post("/crons/confirm", name="sweep")
    fields = asked_once_more(asked.text)
    first = await grace.post("/crons/run", **fields, why="the disk is full")
    second = await grace.post("/crons/run", **fields, why="the disk is full")  # a double click

    assert "ran=" in first.headers["location"]
    assert "did=nothing" in second.headers["location"]
    assert "its event" in (await grace.see(first.headers["location"])).text
    assert (
        place.rows("SELECT last_tick FROM outbox_crons WHERE name = 'sweep'")[0]
        .last_tick.isoformat()
        .startswith("2026-03-01T02:00")
    )
    records = place.rows("SELECT action, actor_id, detail FROM outbox_audit ORDER BY id")
    assert [(each.action, each.actor_id) for each in records] == [
        ("enqueued", "grace"),
        ("cron run now", "grace"),
    ]
    assert records[1].detail == {"cron": "sweep", "why": "the disk is full"}
    with place.engine.begin() as connection:  # only its own event is wanted here
        connection.execute(text("DELETE FROM outbox_crons"))
    await Consumer(place.outbox, place.async_engine).drain()
    (event,) = place.got
    assert event.payload == {"deep": True}
    assert event.headers["cron"] == "sweep"
    assert event.headers["actor_id"] == "grace"


async def test_a_cron_that_ticked_meanwhile_is_not_run_unasked(
    place: Place, grace: Visiting
) -> None:
    asked = await grace.post("/crons/confirm", name="sweep")
    with place.engine.begin() as connection:
        connection.execute(text("UPDATE outbox_crons SET updated_at = clock_timestamp()"))

    answer = await grace.post("/crons/run", **asked_once_more(asked.text))

    assert "Nothing was added" in (await grace.see(answer.headers["location"])).text
    assert place.rows("SELECT FROM outbox") == []


@pytest.mark.parametrize(
    ("name", "says"),
    [("sweeep", "did you mean"), ("of-another", "declares no cron"), ("new-year", "start one")],
)
async def test_a_cron_that_can_not_be_run_is_refused(
    place: Place, grace: Visiting, name: str, says: str
) -> None:
    answer = await grace.post("/crons/run", name=name, seen="2026-01-01T00:00:00+00:00")

    assert answer.status_code == 400
    assert says in answer.text
    assert place.rows("SELECT FROM outbox") == []
    assert (await grace.post("/crons/confirm", name="nobody")).status_code == 404


PROGRAM = """
from sa_outbox import Outbox

outbox = Outbox()
outbox.cron("0 3 * * *", "sweep", time_zone="Europe/Berlin")
"""


def test_the_commands_list_them_and_run_one(
    engine: Engine, migrated_url: URL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine.begin() as connection:
        statement = "INSERT INTO outbox_crons (name, last_tick) VALUES ('sweep', :at)"
        connection.execute(text(statement), {"at": LAST})
    (tmp_path / "crons_program.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SA_OUTBOX_DATABASE_URL", migrated_url.render_as_string(hide_password=False))

    def run(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(main, ["crons", *words])
        assert result.exit_code == code, result.output
        return result.output

    app = ("--app", "crons_program:outbox")
    (sweep,) = json.loads(run("list", "--json", *app))
    assert (sweep["expression"], len(sweep["next_ticks"])) == ("0 3 * * *", 3)
    assert "late" in run("list", *app)
    assert "not declared" in run("list")
    assert "added event" in run("run", "sweep", "--by", "ada", *app)
    assert "which program" in run("run", "sweep", code=2)
    with engine.connect() as connection:
        added = connection.execute(text("SELECT event_type, headers ->> 'actor_id' FROM outbox"))
        assert [tuple(each) for each in added] == [("sweep", "ada")]
    sys.modules.pop("crons_program", None)
