"""The dashboard on a real database: who is let in, what is shown, and nothing that could run."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from sqlalchemy import URL, Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse
from starlette.routing import Mount

from sa_outbox import Outbox
from sa_outbox.dashboard import Dashboard, Visitor, live
from sa_outbox.dashboard.access import COOKIE, GUESS_SECONDS, MAX_GUESSES
from tests.support.dashboard import (
    EVENT_ID,
    HOST,
    MARKUP,
    ODD_ERRORS,
    TOKEN,
    Visiting,
    add_harmful_rows,
    dashboard_of,
    shown_as_text,
)

pytestmark = pytest.mark.anyio

SECRET = "a-secret-that-is-long-enough"
PAGES = [
    *("/", "/listeners", "/deliveries", "/events"),
    *("/crons", "/endpoints", "/audit", "/durations"),
    *("/dead-letters", "/dead-letters/1", f"/events/{EVENT_ID}"),
]


@pytest.fixture
async def async_engine(migrated_url: URL, engine: Engine) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(migrated_url.set(drivername="postgresql+asyncpg"))
    yield made
    await made.dispose()


@pytest.fixture
def dashboard(async_engine: AsyncEngine) -> Dashboard:
    return dashboard_of(Outbox(), async_engine, mask=["secret", "card.*"])


@pytest.fixture
async def grace(dashboard: Dashboard) -> AsyncIterator[Visiting]:
    """Has signed in."""
    async with Visiting(dashboard) as visiting:
        await visiting.sign_in()
        yield visiting


class TestSigningIn:
    async def test_nobody_sees_a_page_or_the_stream_without_the_token(
        self, dashboard: Dashboard
    ) -> None:
        async with Visiting(dashboard) as stranger:
            for path in [*PAGES, "/live", "/nowhere"]:
                answer = await stranger.see(path)
                assert answer.status_code == 303
                assert answer.headers["location"].startswith("/login?next=")
                assert (await stranger.see(path, Accept="text/event-stream")).status_code == 401

    async def test_a_wrong_token_is_refused_and_not_repeated(self, dashboard: Dashboard) -> None:
        async with Visiting(dashboard) as stranger:
            answer = await stranger.sign_in("not-the-token-at-all", name=MARKUP)

            assert answer.status_code == 401
            assert "That is not the token" in answer.text
            assert "not-the-token-at-all" not in answer.text
            assert shown_as_text(answer.text)
            assert COOKIE not in stranger.client.cookies
            assert (await stranger.see("/events")).status_code == 303

    async def test_the_cookie_is_not_the_token_and_no_script_reads_it(
        self, dashboard: Dashboard
    ) -> None:
        async with Visiting(dashboard) as grace:
            answer = await grace.sign_in(next="/events")

            cookie = answer.headers["set-cookie"]
            assert answer.status_code == 303
            assert answer.headers["location"] == "/events"
            assert TOKEN not in cookie
            assert cookie.endswith("HttpOnly; SameSite=Strict; Secure")
            assert (await grace.see("/events")).status_code == 200

    @pytest.mark.parametrize("goes_to", ["https://evil.example", "//evil.example", "/\\evil", "x"])
    async def test_signing_in_leads_nowhere_else(self, dashboard: Dashboard, goes_to: str) -> None:
        async with Visiting(dashboard) as grace:
            answer = await grace.sign_in(next=goes_to)

            assert answer.headers["location"] == "/"

    async def test_signing_out_forgets_the_session(self, grace: Visiting) -> None:
        answer = await grace.post("/logout")

        assert answer.status_code == 303
        assert "Max-Age=0" in answer.headers["set-cookie"]
        assert (await grace.see("/")).status_code == 303

    async def test_a_cookie_that_was_signed_out_of_is_refused(self, grace: Visiting) -> None:
        stolen = grace.client.cookies[COOKIE]
        await grace.post("/logout")

        grace.client.cookies.set(COOKIE, stolen)

        assert (await grace.see("/")).status_code == 303
        assert (await grace.see("/live", Accept="text/event-stream")).status_code == 401

    async def test_who_gives_many_wrong_tokens_has_to_wait_and_who_is_signed_in_has_not(
        self, dashboard: Dashboard, grace: Visiting
    ) -> None:
        async with Visiting(dashboard) as stranger:
            for _ in range(MAX_GUESSES):
                assert (await stranger.sign_in("not-the-token-at-all")).status_code == 401

            right = await stranger.sign_in()
            bearer = await stranger.see("/", Authorization=f"Bearer {TOKEN}")

        assert (right.status_code, bearer.status_code) == (429, 429)
        assert 1 <= int(right.headers["retry-after"]) <= GUESS_SECONDS + 1
        assert (await grace.see("/listeners")).status_code == 200

    async def test_the_form_to_sign_in_is_small(self, dashboard: Dashboard) -> None:
        async with Visiting(dashboard) as stranger:
            answer = await stranger.sign_in(name="x" * 10_000)

            assert answer.status_code == 413

    @pytest.mark.parametrize(
        ("origin", "options", "status"),
        [
            ("http://ops.example", {}, 400),
            ("https://ops.example", {}, 303),
            ("http://ops.example", {"secure_cookies": False}, 303),
        ],
    )
    async def test_nobody_signs_in_over_plain_http_unless_that_was_chosen(
        self, async_engine: AsyncEngine, origin: str, options: Any, status: int
    ) -> None:
        dashboard = dashboard_of(Outbox(), async_engine, **options)
        async with Visiting(dashboard, Origin=origin) as grace:
            answer = await grace.sign_in()

            assert answer.status_code == status

    async def test_behind_a_proxy_that_ends_tls_the_cookie_is_secure(
        self, async_engine: AsyncEngine
    ) -> None:
        dashboard = dashboard_of(Outbox(), async_engine)
        async with Visiting(dashboard) as grace:
            plain = httpx2.URL("http://ops.example/login")
            answer = await grace.client.post(plain, data={"name": "grace", "token": TOKEN})

            assert answer.headers["set-cookie"].endswith("; Secure")

    async def test_a_bearer_is_let_in_without_a_cookie(self, dashboard: Dashboard) -> None:
        async with Visiting(dashboard) as script:
            assert (await script.see("/", Authorization=f"Bearer {TOKEN}")).status_code == 200
            assert (await script.see("/", Authorization="Bearer wrong")).status_code == 401

    async def test_another_process_knows_the_session_and_one_with_another_token_does_not(
        self, grace: Visiting, async_engine: AsyncEngine
    ) -> None:
        cookie = {"Cookie": f"{COOKIE}={grace.client.cookies[COOKIE]}"}
        for token, status in ((TOKEN, 200), (TOKEN + "!", 303)):
            other = dashboard_of(Outbox(), async_engine, token=token)
            async with Visiting(other, **cookie) as visiting:
                assert (await visiting.see("/listeners")).status_code == status


class TestForms:
    """A POST to nowhere: what the guard lets through is not found."""

    async def test_a_form_without_its_token_is_refused(self, grace: Visiting) -> None:
        assert (await grace.post("/nowhere")).status_code == 404
        for token in ("", "0" * 64, grace.form_token[:-1]):
            answer = await grace.post("/nowhere", form_token=token)
            assert answer.status_code == 403
            assert "belongs to another session" in answer.text

    async def test_the_token_of_another_session_is_refused(
        self, grace: Visiting, dashboard: Dashboard
    ) -> None:
        async with Visiting(dashboard) as ada:
            await ada.sign_in(name="grace")

            answer = await ada.post("/nowhere", form_token=grace.form_token)

            assert answer.status_code == 403

    @pytest.mark.parametrize(
        ("headers", "status"),
        [
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Sec-Fetch-Site": "same-site"}, 403),
            ({"Sec-Fetch-Site": "same-origin", "Origin": "https://behind-a-proxy.example"}, 404),
            ({"Origin": HOST}, 404),
            ({"Origin": "https://trusted.example", "Sec-Fetch-Site": "cross-site"}, 404),
        ],
    )
    async def test_a_form_of_another_site_is_refused(
        self, async_engine: AsyncEngine, headers: dict[str, str], status: int
    ) -> None:
        dashboard = dashboard_of(
            Outbox(), async_engine, trusted_origins=["https://trusted.example"]
        )
        async with Visiting(dashboard) as grace:
            await grace.sign_in()

            assert (await grace.post("/nowhere", headers=headers)).status_code == status

    async def test_a_form_that_is_too_large_or_none_is_refused(self, grace: Visiting) -> None:
        large = await grace.post("/nowhere", payload="x" * 7_000_000)
        json_ = await grace.client.post("/nowhere", json={})
        fields = await grace.client.post("/nowhere", data={f"f{n}": "" for n in range(700)})

        assert (large.status_code, json_.status_code, fields.status_code) == (413, 415, 400)

    async def test_other_methods_are_refused(self, grace: Visiting) -> None:
        for method in ("PUT", "DELETE", "OPTIONS", "PATCH"):
            assert (await grace.client.request(method, "/")).status_code == 405
        assert (await grace.client.head("/listeners")).status_code == 200


class TestAnonymous:
    """On this machine alone."""

    @pytest.mark.parametrize(
        "header", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via", "X-Forwarded-Host"]
    )
    async def test_what_came_through_a_proxy_is_refused(
        self, async_engine: AsyncEngine, header: str
    ) -> None:
        dashboard = Dashboard(
            Outbox(), async_engine, allow_anonymous=True, allowed_hosts=["ops.example"]
        )
        async with Visiting(dashboard) as somebody:
            assert (await somebody.see("/listeners")).status_code == 200
            refused = await somebody.see("/listeners", **{header: "203.0.113.7"})

            assert refused.status_code == 403
            assert "SA_OUTBOX_DASHBOARD_TOKEN" in refused.text


class TestOwnPeople:
    """``auth=``: the program knows who somebody is."""

    @staticmethod
    def auth(request: Request) -> Any:
        name = request.headers.get("x-user")
        if name == "elsewhere":
            return RedirectResponse("/sign-in")
        return {"ada": Visitor("ada"), "grace": Visitor("grace", "operator")}.get(name or "")

    async def test_who_is_not_known_is_refused(self, async_engine: AsyncEngine) -> None:
        dashboard = dashboard_of(Outbox(), async_engine, auth=self.auth, secret=SECRET)
        async with Visiting(dashboard) as stranger:
            assert (await stranger.see("/")).status_code == 401
            assert (await stranger.see("/login")).status_code == 401
            answer = await stranger.see("/", **{"X-User": "elsewhere"})
            assert answer.headers["location"] == "/sign-in"

    async def test_a_viewer_sees_everything_and_changes_nothing(
        self, async_engine: AsyncEngine
    ) -> None:
        async def auth(request: Request) -> Any:
            return self.auth(request)

        dashboard = dashboard_of(Outbox(), async_engine, auth=auth, secret=SECRET)
        async with Visiting(dashboard, **{"X-User": "ada"}) as ada:
            assert (await ada.see("/dead-letters")).status_code == 200
            answer = await ada.post("/nowhere")
            assert answer.status_code == 403
            assert "is a viewer" in answer.text

    async def test_an_operators_forms_are_bound_to_the_browser(
        self, async_engine: AsyncEngine
    ) -> None:
        dashboard = dashboard_of(Outbox(), async_engine, auth=self.auth, secret=SECRET)
        token = dashboard.keys.form_token(
            dashboard.keys.new_session("forms"), Visitor("grace", "operator")
        )
        async with Visiting(dashboard, **{"X-User": "grace"}) as grace:
            assert (await grace.post("/nowhere", form_token=token)).status_code == 403
            await grace.see("/")
            assert (await grace.post("/nowhere", form_token=token)).status_code == 403

    async def test_nobody_changes_anything_where_it_is_read_only(
        self, async_engine: AsyncEngine
    ) -> None:
        dashboard = dashboard_of(Outbox(), async_engine, read_only=True)
        async with Visiting(dashboard) as grace:
            await grace.sign_in()
            answer = await grace.post("/nowhere")

            assert answer.status_code == 403
            assert "read-only" in answer.text
            assert (await grace.post("/logout")).status_code == 303

    async def test_on_the_loopback_only_its_names_are_answered(
        self, async_engine: AsyncEngine
    ) -> None:
        dashboard = Dashboard(
            Outbox(), async_engine, allow_anonymous=True, allowed_hosts=["127.0.0.1", "::1"]
        )
        async with Visiting(dashboard) as browser:
            for host, status in (
                ("127.0.0.1:8765", 200),
                ("[::1]:8765", 200),
                ("rebound.evil.example:8765", 421),
                ("", 421),
            ):
                assert (await browser.see("/listeners", Host=host)).status_code == status


class TestPages:
    async def test_what_would_be_markup_is_text_on_every_page(
        self, grace: Visiting, engine: Engine
    ) -> None:
        add_harmful_rows(engine)
        quoted = httpx2.QueryParams({"name": MARKUP})

        for path in [
            *PAGES,
            "/dead-letters/2",
            "/dead-letters?resolution=any",
            f"/listener?{quoted}",
        ]:
            answer = await grace.see(path)
            assert answer.status_code == 200, path
            assert shown_as_text(answer.text), path

    async def test_errors_that_somebody_else_wrote_are_a_page(
        self, grace: Visiting, engine: Engine
    ) -> None:
        add_harmful_rows(engine)

        for name, stored in ODD_ERRORS.items():
            with engine.begin() as connection:
                update = "UPDATE outbox_dead_letters SET errors = CAST(:stored AS jsonb)"
                connection.execute(text(update), {"stored": stored})
            for path in ("/dead-letters", "/dead-letters/1", f"/events/{EVENT_ID}"):
                answer = await grace.see(path)
                assert answer.status_code == 200, (name, path)

    async def test_dead_letters_are_grouped_by_error_and_each_group_leads_to_them(
        self, grace: Visiting, engine: Engine
    ) -> None:
        add_harmful_rows(engine)
        with engine.begin() as connection:
            update = "UPDATE outbox_dead_letters SET error_fingerprint = :given WHERE id = 1"
            connection.execute(text(update), {"given": "f&1"})

        shown = (await grace.see("/dead-letters?group=error")).text
        assert shown_as_text(shown)
        assert (
            'href="/dead-letters?fingerprint=f%261&amp;resolution=open"'
            in (await grace.see("/dead-letters?group=error&resolution=open")).text
        )
        assert 'href="/dead-letters?fingerprint=f%261"' in shown
        assert 'href="/dead-letters?group=error"' in (await grace.see("/dead-letters")).text
        assert "1 found" in (await grace.see("/dead-letters?fingerprint=f%261")).text
        assert "0 found" in (await grace.see("/dead-letters?fingerprint=other")).text
        assert 'href="/dead-letters?fingerprint=f%261"' in (await grace.see("/dead-letters/1")).text
        assert (await grace.see("/dead-letters?group=x")).status_code == 400

    async def test_a_traceback_is_closed_until_somebody_opens_it(
        self, grace: Visiting, engine: Engine
    ) -> None:
        add_harmful_rows(engine)

        shown = (await grace.see("/dead-letters/1")).text

        assert "<details><summary>Traceback</summary><pre" in shown

    async def test_what_was_searched_for_is_text_too(self, grace: Visiting) -> None:
        for path in ("/events", "/dead-letters"):
            answer = await grace.see(
                f"{path}?{httpx2.QueryParams({'key': MARKUP, 'type': MARKUP})}"
            )
            assert answer.status_code == 200
            assert shown_as_text(answer.text)

    async def test_every_answer_has_its_headers(self, grace: Visiting) -> None:
        answers = [
            await grace.see(path)
            for path in ("/", "/live-not", "/events?since=x", "/static/dashboard.css", "/login")
        ]
        answers.append(await grace.post("/x", form_token="x"))
        async with Visiting(grace.client._transport.app) as stranger:  # type: ignore[attr-defined]
            answers.append(await stranger.see("/"))

        for answer in answers:
            policy = answer.headers["content-security-policy"]
            assert "default-src 'self'" in policy
            assert "unsafe" not in policy
            for part in ("frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"):
                assert part in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "same-origin"
            static = "/static/" in str(answer.url)
            assert (answer.headers["cache-control"] == "no-store") is not static

    async def test_masked_fields_are_on_no_page(self, grace: Visiting, engine: Engine) -> None:
        payload = {"secret": "hidden-1", "deep": [{"card": {"number": "hidden-2"}}], "open": "seen"}
        with engine.begin() as connection:
            for table, more in (
                ("outbox (", "("),
                (
                    "outbox_dead_letters (listener, position, event_created_at, reason, ",
                    "('mailer', 1, now(), 'attempts', ",
                ),
            ):
                connection.execute(
                    text(
                        f"INSERT INTO {table} event_id, event_type, payload, headers) VALUES {more}"
                        " cast(:id AS uuid), 'order.placed', cast(:json AS jsonb),"
                        ' \'{"secret": "hidden-3"}\')'
                    ),
                    {"id": EVENT_ID, "json": json.dumps(payload)},
                )

        for path in PAGES:
            answer = await grace.see(path)
            assert answer.status_code == 200
            assert "hidden-" not in answer.text, path
        assert "seen" in answer.text

    @pytest.mark.parametrize(
        "path",
        [
            "/events?since=yesterday",
            "/events?until=9999-99-99",
            "/events?before=x",
            "/events?before=-1",
            "/events?before=99999999999999999999",
            "/events?id=what",
            "/events/what",
            "/events?key=" + "x" * 501,
            "/events?tenant=%00",
            "/dead-letters?reason=none",
            "/dead-letters?resolution=x",
            "/dead-letters?did=x",
            "/dead-letters?did=replay&done=x",
            "/dead-letters?since=0001-01-01T00:00%2B23:00",
        ],
    )
    async def test_a_wrong_filter_is_answered_with_what_is_wrong(
        self, grace: Visiting, path: str
    ) -> None:
        answer = await grace.see(path)

        assert answer.status_code == 400
        assert 'role="alert"' in answer.text

    @pytest.mark.parametrize(
        "path",
        [
            "/events?since=0001-01-01&until=9999-12-31T23:59",
            "/events?type=*%25_\\&key=%25",
            "/dead-letters?type=*&listener=%F0%9F%92%A5&before=9223372036854775807",
        ],
    )
    async def test_an_odd_filter_finds_nothing(self, grace: Visiting, path: str) -> None:
        assert (await grace.see(path)).status_code == 200

    @pytest.mark.parametrize(
        "path",
        [
            "/nowhere",
            "/dead-letters/99",
            "/dead-letters/99999999999999999999",
            f"/events/{EVENT_ID}",
            "/events/7",
            "/listener?name=x",
            "/static/settings.py",
            "/static/..%2fsettings.py",
        ],
    )
    async def test_what_is_not_there_is_a_page_that_says_so(
        self, grace: Visiting, path: str
    ) -> None:
        assert (await grace.see(path)).status_code == 404

    async def test_events_are_found_page_by_page(
        self, async_engine: AsyncEngine, engine: Engine
    ) -> None:
        outbox = Outbox()
        with outbox.sessionmaker(engine).begin() as session:
            for number in range(5):
                session.add_event("order.placed", {"n": number}, key=f"o-{number}", tenant="acme")
        dashboard = dashboard_of(outbox, async_engine, page_size=2)
        async with Visiting(dashboard) as grace:
            await grace.sign_in()
            first = await grace.see("/events?tenant=acme")
            assert ["o-4" in first.text, "o-3" in first.text, "o-2" in first.text] == [
                True,
                True,
                False,
            ]
            assert 'href="/events?tenant=acme&amp;before=4"' in first.text
            second = await grace.see("/events?tenant=acme&before=4")
            assert ["o-3" in second.text, "o-2" in second.text] == [False, True]
            assert "o-2" in (await grace.see("/events/3")).text
            assert (await grace.see("/events?id=3")).headers["location"] == "/events/3"


class TestPlaces:
    async def test_mounted_its_links_and_its_cookie_have_the_prefix(
        self, dashboard: Dashboard
    ) -> None:
        async def not_found(request: Request, error: Exception) -> JSONResponse:
            return JSONResponse({}, 404)

        program = Starlette(
            routes=[Mount("/ops/outbox", dashboard)],
            exception_handlers={404: not_found, 400: not_found},
        )
        async with Visiting(program, base="/ops/outbox") as grace:
            assert (await grace.see("/")).headers["location"] == "/ops/outbox/login?next=/"
            answer = await grace.sign_in(next="/listeners")
            assert answer.headers["location"] == "/ops/outbox/listeners"
            assert "Path=/ops/outbox;" in answer.headers["set-cookie"]
            overview = await grace.see("/")
            assert 'data-source="/ops/outbox/live"' in overview.text
            assert 'href="/ops/outbox/static/dashboard.css' in overview.text
            # The program's own answers to errors are not ours.
            assert "Bad Request" in (await grace.see("/events?before=x")).text
            assert "Not Found" in (await grace.see("/nowhere")).text

    async def test_given_an_address_it_makes_an_engine_and_closes_it(
        self, migrated_url: URL, engine: Engine
    ) -> None:
        dashboard = dashboard_of(Outbox(), migrated_url)
        async with Visiting(dashboard) as grace:
            await grace.sign_in()
            assert (await grace.see("/")).status_code == 200
            await dashboard.close()
            assert (await grace.see("/listeners")).status_code == 200  # made again, when asked
        await dashboard.close()

    @pytest.mark.parametrize("broken", ["away", "no tables"])
    async def test_a_database_that_fails_is_told_without_its_address(
        self, server_url: str, broken: str
    ) -> None:
        url = "postgresql://u:hush@127.0.0.1:1/secretname" if broken == "away" else server_url
        dashboard = dashboard_of(Outbox(prefix="nothing"), url)
        async with Visiting(dashboard) as grace:
            await grace.sign_in()
            answer = await grace.see("/")

        assert answer.status_code == 503
        for word in ("hush", "127.0.0.1", "secretname", "Traceback"):
            assert word not in answer.text
        assert ("be reached" if broken == "away" else "migrate") in answer.text
        await dashboard.close()

    async def test_the_stream_tells_what_changed(
        self, grace: Visiting, dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(live, "SAMPLE_SECONDS", 0.01)
        monkeypatch.setattr(live, "STREAM_SECONDS", 0.2)

        answer = await grace.see("/live", Accept="text/event-stream")

        assert answer.headers["content-type"].startswith("text/event-stream")
        first = next(line for line in answer.text.splitlines() if line.startswith("data: "))
        assert set(json.loads(first.removeprefix("data: "))) == {
            "tiles",
            "charts",
            "listeners",
            "others",
        }
        dashboard.streams.end()
        assert "data:" not in (await grace.see("/live")).text
