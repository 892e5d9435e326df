"""What an operator does by the dashboard, and what nobody can do by it."""

from __future__ import annotations

import html
import json
import re
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import URL, Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sa_outbox import Event, NoSecrets, Outbox, RetryPolicy
from sa_outbox.consumer import Consumer
from sa_outbox.dashboard import Visitor
from tests.support.dashboard import MARKUP, Visiting, add_harmful_rows, dashboard_of

pytestmark = pytest.mark.anyio

DOCS = Path(__file__).parents[2] / "docs"
SECRET = "a-secret-that-is-long-enough"
POSTS = [
    "/dead-letters/act",
    "/dead-letters/confirm",
    "/dead-letters/1/edit",
    "/dead-letters/1/compare",
    "/dead-letters/1/edit-again",
    "/listener/pause",
    "/listener/resume",
    "/listener/confirm",
    "/listener/move",
    "/deliveries/confirm",
    "/deliveries/act",
    "/crons/confirm",
    "/crons/run",
    "/endpoint/disable",
    "/endpoint/enable",
]


PAGES = [
    *("/", "/listeners", "/listener?name=mailer", "/durations", "/deliveries", "/events"),
    *("/events/1", "/dead-letters", "/dead-letters/1", "/dead-letters?group=error", "/crons"),
    *("/endpoints", f"/endpoint?name={quote(MARKUP)}", "/audit"),
]


class Shop:
    """A listener that fails until it is fixed, and what it was given."""

    def __init__(self, engine: Engine, async_engine: AsyncEngine) -> None:
        self.engine, self.async_engine = engine, async_engine
        self.outbox = Outbox(notify="off")
        self.fixed = False
        self.handled: list[Any] = []

        @self.outbox.listener("mailer", on="order.*", retry=RetryPolicy(attempts=1))
        async def mail(event: Event[Any]) -> None:
            if not self.fixed:
                raise ValueError("no such user")
            self.handled.append(event.payload)

    async def fail(self, *numbers: int) -> None:
        """Dead letters, with ids from 1 in the order of the numbers."""
        with self.outbox.sessionmaker(self.engine).begin() as session:
            for number in numbers:
                card = {"number": f"4242-{number}", "holder": "Ada"}
                payload = {"n": number, "total": "1.10", "card": card}
                session.add_event("order.placed", payload, key=f"o-{number}", tenant="acme")
        await self.drain()

    async def drain(self) -> None:
        await Consumer(self.outbox, self.async_engine).drain()

    def rows(self, statement: str) -> list[Any]:
        with self.engine.connect() as connection:
            return list(connection.execute(text(statement)))

    def letters(self) -> list[tuple[Any, ...]]:
        found = self.rows(
            "SELECT resolution, resolved_by, resolved_why FROM outbox_dead_letters ORDER BY id"
        )
        return [tuple(each) for each in found]


@pytest.fixture
async def shop(migrated_url: URL, engine: Engine) -> AsyncIterator[Shop]:
    made = create_async_engine(migrated_url.set(drivername="postgresql+asyncpg"))
    with engine.begin() as connection:
        connection.execute(text("TRUNCATE outbox_audit"))
    yield Shop(engine, made)
    await made.dispose()


@pytest.fixture
async def grace(shop: Shop) -> AsyncIterator[Visiting]:
    dashboard = dashboard_of(shop.outbox, shop.async_engine, mask=["number"])
    async with Visiting(dashboard) as visiting:
        await visiting.sign_in()
        yield visiting


OPEN = (None, None, None)


async def test_a_replay_delivers_again_and_a_double_click_does_not_twice(
    shop: Shop, grace: Visiting
) -> None:
    await shop.fail(1)
    shop.fixed = True

    first = await grace.post("/dead-letters/act", act="replay", id="1", why="user exists now")
    second = await grace.post("/dead-letters/act", act="replay", id="1")
    await shop.drain()

    assert "1 replayed" in (await grace.see(first.headers["location"])).text
    assert "Nothing was done" in (await grace.see(second.headers["location"])).text
    assert [each["n"] for each in shop.handled] == [1]
    assert shop.letters() == [("replayed", "grace", "user exists now")]


async def test_a_discard_is_asked_for_once_more_and_recorded(shop: Shop, grace: Visiting) -> None:
    await shop.fail(1, 2, 3)

    asked = await grace.client.post(
        "/dead-letters/confirm",
        data={"form_token": grace.form_token, "act": "discard", "id": ["1", "3"]},
    )
    before = shop.letters()
    done = await grace.client.post(
        "/dead-letters/act",
        data={"form_token": grace.form_token, "act": "discard", "id": ["1", "3"], "why": "test"},
    )

    assert "Discard 2 dead letters?" in asked.text
    assert before == [OPEN] * 3
    assert done.headers["location"] == "/dead-letters?did=discard&done=2&left=0"
    assert shop.letters() == [("discarded", "grace", "test"), OPEN, ("discarded", "grace", "test")]


async def test_all_that_match_are_those_of_when_they_were_counted(
    shop: Shop, grace: Visiting
) -> None:
    await shop.fail(1, 2)
    asked = await grace.post("/dead-letters/confirm", act="discard-all", listener="mailer")
    fields = {
        name: html.unescape(value)
        for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', asked.text)
    }
    await shop.fail(3)

    done = await grace.post("/dead-letters/act", act="discard", **fields)

    assert "Discard 2 dead letters?" in asked.text
    assert "done=2" in done.headers["location"]
    assert [each[0] for each in shop.letters()] == ["discarded", "discarded", None]


async def test_a_filter_that_matches_others_spares_the_rest(shop: Shop, grace: Visiting) -> None:
    await shop.fail(1, 2)

    await grace.post("/dead-letters/act", act="fixed", newest="99", key="o-2")

    assert [each[0] for each in shop.letters()] == [None, "fixed"]


@pytest.mark.parametrize(
    "fields",
    [{"act": "replay"}, {"act": "x", "id": "1"}, {"id": "x"}, {"id": "1", "why": "x" * 301}],
    ids=["none", "unknown", "no number", "long"],
)
async def test_what_is_not_understood_changes_nothing(
    shop: Shop, grace: Visiting, fields: dict[str, str]
) -> None:
    await shop.fail(1)

    for path in ("/dead-letters/act", "/dead-letters/confirm"):
        if "why" not in fields or path.endswith("act"):
            assert (await grace.post(path, **fields)).status_code == 400
    assert shop.letters() == [OPEN]


class TestEditing:
    async def test_an_edit_is_compared_saved_and_replayed_with_its_masked_values(
        self, shop: Shop, grace: Visiting
    ) -> None:
        await shop.fail(1)
        shop.fixed = True
        page = await grace.see("/dead-letters/1/edit")
        found = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", page.text, re.DOTALL)
        assert found
        shown = html.unescape(found[1])
        edited = shown.replace('"Ada"', '"Ada Lovelace"')
        compared = await grace.post("/dead-letters/1/compare", payload=edited, edits="0")
        done = await grace.post(
            "/dead-letters/1/edit", payload=edited, edits="0", then="replay", why="name"
        )
        await shop.drain()

        assert "4242-1" not in page.text + compared.text
        assert "Lines removed: 1, added: 1." in compared.text
        assert "done=1" in done.headers["location"]
        assert shop.handled == [
            {"n": 1, "total": "1.10", "card": {"number": "4242-1", "holder": "Ada Lovelace"}}
        ]
        assert shop.letters() == [("replayed", "grace", "name")]
        # The log keeps the event as it was.
        assert shop.rows("SELECT payload->'card'->>'holder' FROM outbox")[0][0] == "Ada"

    @pytest.mark.parametrize(
        ("edited", "why"),
        [
            ({"n": 1}, "«masked 1» is missing"),
            ({"card": {"number": "other"}}, "«masked 1» is missing"),
            ({"note": "«masked 1»"}, "would be shown"),
            ("{", "line 1 column 2"),
        ],
        ids=["gone", "overwritten", "moved", "no JSON"],
    )
    async def test_an_edit_that_loses_or_shows_a_masked_value_is_refused_everywhere(
        self, shop: Shop, grace: Visiting, edited: Any, why: str
    ) -> None:
        await shop.fail(1)
        payload = edited if isinstance(edited, str) else json.dumps(edited, ensure_ascii=False)

        compared = await grace.post("/dead-letters/1/compare", payload=payload, edits="0")
        saved = await grace.post("/dead-letters/1/edit", payload=payload, edits="0")

        for answer in (compared, saved):
            assert answer.status_code == 400
            assert why in html.unescape(answer.text)
        assert payload in html.unescape(compared.text)  # what was typed is not lost
        assert shop.rows("SELECT edits FROM outbox_dead_letters")[0][0] == 0

    async def test_an_edit_that_the_program_refuses_is_refused_before_it_is_shown(
        self, shop: Shop, grace: Visiting
    ) -> None:
        await shop.fail(1)
        shop.outbox.settings = replace(shop.outbox.settings, check_event=NoSecrets())
        payload = '{"n": 1, "password": "hunter2", "card": {"number": "«masked 1»"}}'

        compared = await grace.post("/dead-letters/1/compare", payload=payload, edits="0")
        saved = await grace.post("/dead-letters/1/edit", payload=payload, edits="0")

        for answer in (compared, saved):
            assert answer.status_code == 400
            assert "payload at $.password looks like a secret" in html.unescape(answer.text)
        assert payload in html.unescape(compared.text)
        assert shop.rows("SELECT edits FROM outbox_dead_letters")[0][0] == 0

    async def test_who_comes_second_is_told(self, shop: Shop, grace: Visiting) -> None:
        await shop.fail(1)
        payload = '{"n": 2, "card": {"number": "«masked 1»"}}'
        fields = {"payload": payload, "edits": "0", "then": "stay"}

        first = await grace.post("/dead-letters/1/edit", **fields)
        second = await grace.post("/dead-letters/1/edit", **fields)
        await grace.post("/dead-letters/act", act="discard", id="1")

        assert first.headers["location"] == "/dead-letters/1?did=edit"
        assert second.status_code == 409
        assert (await grace.see("/dead-letters/1/edit")).status_code == 409
        assert shop.rows("SELECT payload->>'n' FROM outbox_dead_letters")[0][0] == "2"


class TestListeners:
    async def test_a_listener_is_paused_and_resumed(self, shop: Shop, grace: Visiting) -> None:
        await shop.drain()
        await grace.post("/listener/pause", name="mailer", why="mail server is down")
        shown = await grace.see("/listener?name=mailer&did=paused")
        await grace.post("/listener/resume", name="mailer")

        assert "paused" in shown.text
        assert "/listener/resume" in shown.text
        assert shop.rows("SELECT paused_at FROM outbox_listeners")[0][0] is None
        audit = shop.rows("SELECT action, actor_id, detail->>'why' FROM outbox_audit ORDER BY id")
        assert [tuple(each) for each in audit] == [
            ("paused", "grace", "mail server is down"),
            ("resumed", "grace", None),
        ]

    async def test_a_listener_is_rewound_after_a_second_look(
        self, shop: Shop, grace: Visiting
    ) -> None:
        shop.fixed = True
        await shop.fail(1, 2)
        asked = await grace.post("/listener/confirm", name="mailer", act="rewind", to="beginning")
        assert [each["n"] for each in shop.handled] == [1, 2]

        done = await grace.post("/listener/move", name="mailer", act="rewind", to="2")
        await shop.drain()

        assert "Rewind" in asked.text
        assert "did=rewind" in done.headers["location"]
        assert [each["n"] for each in shop.handled] == [1, 2, 2]

    async def test_what_waits_is_skipped(self, shop: Shop, grace: Visiting) -> None:
        await shop.drain()
        shop.fixed = True
        with shop.outbox.sessionmaker(shop.engine).begin() as session:
            for number in (1, 2, 3):
                session.add_event("order.placed", {"n": number}, key=str(number))
        await grace.post("/listener/move", name="mailer", act="skip-event", to="2")
        await grace.post("/listener/move", name="mailer", act="skip", to="1")
        await shop.drain()

        assert [each["n"] for each in shop.handled] == [3]

    @pytest.mark.parametrize(
        ("fields", "status"),
        [
            ({"name": "nobody", "act": "skip", "to": "now"}, 404),
            ({"name": "mailer", "act": "skip", "to": ""}, 400),
            ({"name": "mailer", "act": "skip", "to": "beginning"}, 400),
            ({"name": "mailer", "act": "skip-event", "to": "now"}, 400),
            ({"name": "mailer", "act": "x", "to": "1"}, 400),
            ({"act": "skip", "to": "1"}, 400),
        ],
    )
    async def test_a_wrong_move_is_refused(
        self, shop: Shop, grace: Visiting, fields: dict[str, str], status: int
    ) -> None:
        await shop.drain()

        for path in ("/listener/move", "/listener/confirm"):
            assert (await grace.post(path, **fields)).status_code == status

    async def test_an_event_that_is_not_there_can_not_be_skipped(
        self, shop: Shop, grace: Visiting
    ) -> None:
        await shop.drain()

        answer = await grace.post("/listener/move", name="mailer", act="skip-event", to="99")

        assert answer.status_code == 409
        assert "there is no event 99" in html.unescape(answer.text).lower()


class TestNobody:
    async def test_a_viewer_is_offered_nothing_and_can_do_nothing(self, shop: Shop) -> None:
        await shop.fail(1)
        add_harmful_rows(shop.engine)
        before = shop.letters()
        dashboard = dashboard_of(
            shop.outbox, shop.async_engine, auth=lambda _: Visitor("ada"), secret=SECRET
        )
        async with Visiting(dashboard) as ada:
            for path in PAGES:
                page = (await ada.see(path)).text
                assert 'method="post"' not in page, path
                assert set(re.findall(r"<button[^>]*>([^<]*)", page)) <= {"Search"}, path
                assert '<bdi>ada</bdi><span class="role" title="may look">read-only' in page
            assert (await ada.see("/dead-letters/1/edit")).status_code == 403
            for path in POSTS:
                answer = await ada.post(path, id="1", act="replay", name="mailer", to="1")
                assert answer.status_code == 403, path
        assert shop.letters() == before

    async def test_a_form_without_its_token_changes_nothing(
        self, shop: Shop, grace: Visiting
    ) -> None:
        await shop.fail(1)

        for path in POSTS:
            answer = await grace.post(path, form_token="", id="1", act="replay", name="mailer")
            assert answer.status_code == 403, path
        assert shop.letters() == [OPEN]

    async def test_a_get_changes_nothing(self, shop: Shop, grace: Visiting) -> None:
        await shop.fail(1)

        for path in POSTS:
            answer = await grace.see(f"{path}?act=replay&id=1&name=mailer&to=1&payload=%7B%7D")
            assert answer.status_code == (200 if path.endswith("/edit") else 405), path
        assert shop.letters() == [OPEN]
        assert shop.rows("SELECT 1 FROM outbox_audit WHERE actor_id = 'grace'") == []


def rights(column: int) -> list[tuple[str, str]]:
    """(rights, tables) of the page: column 1 to see, 2 to change something."""
    found = re.findall(r"^\| (`outbox.*)\|$", (DOCS / "dashboard.md").read_text(), re.MULTILINE)
    rows = [[cell.strip() for cell in f"{row} ".split("|")] for row in found]
    return [(row[column], row[0].replace("`", "")) for row in rows if row[column]]


@pytest.mark.parametrize(("column", "may"), [(1, False), (2, True)], ids=["see", "change"])
async def test_the_rights_that_the_page_tells_are_enough_and_needed(
    shop: Shop, migrated_url: URL, column: int, may: bool
) -> None:
    await shop.fail(1)
    role = f"dashboard_{secrets.token_hex(6)}"
    with shop.engine.begin() as connection:
        connection.execute(text(f"CREATE ROLE {role}"))
        for right, tables in rights(column):
            connection.execute(text(f"GRANT {right} ON {tables} TO {role}"))
    engine = create_async_engine(
        migrated_url.set(drivername="postgresql+asyncpg"),
        connect_args={"server_settings": {"role": role}},
    )
    try:
        async with Visiting(dashboard_of(shop.outbox, engine)) as grace:
            await grace.sign_in()
            for path in ("/", "/listener?name=mailer", "/events", "/events/1", "/dead-letters/1"):
                assert (await grace.see(path)).status_code == 200, path
            for path in ("/listener/pause", "/dead-letters/act"):
                answer = await grace.post(path, name="mailer", act="replay", id="1")
                assert answer.status_code == (303 if may else 503), answer.text
    finally:
        await engine.dispose()
        with shop.engine.begin() as connection:
            connection.execute(text(f"DROP OWNED BY {role}"))
            connection.execute(text(f"DROP ROLE {role}"))
