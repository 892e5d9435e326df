"""A real Chromium, a dashboard on a real port, a database of their own.

Whatever a page says in its console, throws, or asks in a dialog fails the test that made it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import anyio
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from sqlalchemy import Engine, create_engine, text

from sa_outbox import Outbox
from sa_outbox.dashboard import Dashboard
from sa_outbox.dashboard.server import DashboardServer, open_socket
from sa_outbox.schema import migrate
from tests.support.dashboard import TOKEN, add_harmful_rows
from tests.support.server import temporary_database

from .chromium import FLAGS, chromium

PATIENCE = 30_000
"""Milliseconds. Much more than anything takes, on a machine that has much else to do."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = chromium()
    if path is None:
        pytest.skip("no Chromium on the PATH: `make programs` installs it")
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield launched
        launched.close()


@dataclass
class Site:
    """A dashboard that is served, and its database."""

    address: str
    engine: Engine
    dashboard: Dashboard

    def run(self, statement: str, **values: object) -> None:
        with self.engine.begin() as connection:
            connection.execute(text(statement), values)

    def fill(self) -> None:
        """With what every page shows, as it could be worst; and a cron of the program's."""
        add_harmful_rows(self.engine)
        self.run("INSERT INTO outbox_crons (name, last_tick) VALUES ('sweep', now())")

    def value(self, statement: str) -> object:
        with self.engine.connect() as connection:
            return connection.execute(text(statement)).scalar_one()


@pytest.fixture(scope="module")
def served(server_url: str) -> Iterator[Site]:
    with temporary_database(server_url, "browser") as url:
        engine = create_engine(url.set(drivername="postgresql+psycopg"))
        outbox = Outbox(notify="off")
        outbox.cron("0 3 * * *", "sweep", time_zone="UTC")
        with engine.begin() as connection:
            migrate(connection, outbox.settings.names)
        dashboard = Dashboard(outbox, url, token=TOKEN, mask=["secret"])
        opened = open_socket("127.0.0.1", 0)
        server = DashboardServer(dashboard)
        serving = threading.Thread(target=anyio.run, args=(server.serve, [opened]))
        serving.start()
        try:
            yield Site(f"http://127.0.0.1:{opened.getsockname()[1]}", engine, dashboard)
        finally:
            dashboard.streams.end()
            server.should_exit = True
            serving.join()
            engine.dispose()


@pytest.fixture
def site(served: Site) -> Site:
    """With empty tables, and ids from 1."""
    # Not TRUNCATE: the dashboard reads all the time, and its locks would meet those.
    tables = ("dead_letters", "deliveries", "consumers", "listeners", "crons", "endpoints", "audit")
    for table in (*tables, ""):
        served.run(f"DELETE FROM {f'outbox_{table}'.rstrip('_')}")
    for table in ("outbox_dead_letters", "outbox"):
        served.run(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), 1, false)")
    return served


@dataclass
class Visits:
    """Opens contexts, and keeps what their pages complain about."""

    browser: Browser
    site: Site
    complaints: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()
    opened: list[BrowserContext] = field(default_factory=list)

    def stranger(self, **options: object) -> Page:
        context = self.browser.new_context(base_url=self.site.address, **options)  # type: ignore[arg-type]
        context.set_default_timeout(PATIENCE)
        self.opened.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("console", lambda said: self._console(said.type, said.text))
        page.on("dialog", lambda asked: self.complaints.append(f"dialog: {asked.message}"))
        return page

    def operator(self, **options: object) -> Page:
        page = self.stranger(**options)
        page.goto("/login")
        page.get_by_label("Your name").fill("grace")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        return page

    def _console(self, kind: str, said: str) -> None:
        if kind in ("error", "warning") and not any(each in said for each in self.expected):
            self.complaints.append(f"{kind}: {said}")


@pytest.fixture
def visits(browser: Browser, site: Site) -> Iterator[Visits]:
    visiting = Visits(browser, site)
    yield visiting
    for context in visiting.opened:
        context.close()
    assert visiting.complaints == []


@pytest.fixture
def operator(visits: Visits) -> Page:
    """Somebody who has signed in, on a wide screen."""
    return visits.operator()
