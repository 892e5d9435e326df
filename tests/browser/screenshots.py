"""Pictures of the dashboard, in the middle of a shop's day.

``python -m tests.browser.screenshots`` makes those of the documentation, in docs/images;
``make screenshots`` those of every page, light, dark and on a phone, to look at.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from playwright.sync_api import Page, sync_playwright
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sa_outbox.consumer import Consumer
from sa_outbox.dashboard import Dashboard
from sa_outbox.dashboard.server import DashboardServer, open_socket
from sa_outbox.embedded import EmbeddedPostgres
from sa_outbox.schema import migrate

from .chromium import FLAGS, chromium
from .pages import Shown, There, pages
from .shop import ENDPOINTS, Customers, shop

TOKEN = "only-for-these-pictures"
WATCHED_SECONDS = float(os.environ.get("WATCHED_SECONDS", "75"))
WIDE: dict[str, Any] = {"viewport": {"width": 1240, "height": 900}}
DARK = {**WIDE, "color_scheme": "dark"}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}}
PICTURES = [
    ("dashboard", "overview", WIDE),
    ("dashboard-dark", "overview", DARK),
    ("dashboard-phone", "overview", PHONE),
    ("dashboard-compare", "compare", WIDE),
]
"""The name of the file, the page, and how it is looked at."""
LOOKS = {"light": WIDE, "dark": DARK, "phone": PHONE}
EDIT = '"email": "[^"]*"->"email": "ada@example.com"'
THE_EVENT = """
SELECT event_id FROM outbox WHERE event_type = 'points.granted' ORDER BY id DESC LIMIT 1
"""
LETTERS = "SELECT count(*) FROM outbox_dead_letters"


@dataclass(frozen=True)
class Pictures:
    """What is taken: some pages for the documentation, or every page to look at."""

    folder: Path
    every_page: bool = False

    def of(self, shown: list[Shown]) -> list[tuple[str, Shown, dict[str, Any]]]:
        by_name = {each.name: each for each in shown}
        if self.every_page:
            return [
                (f"{name}-{look}", each, options)
                for name, each in by_name.items()
                for look, options in LOOKS.items()
            ]
        return [(name, by_name[page], options) for name, page, options in PICTURES]


async def main(pictures: Pictures, watched_seconds: float = WATCHED_SECONDS) -> None:
    with EmbeddedPostgres() as server:
        outbox, engine = shop(), create_async_engine(server.url("asyncpg"))
        async with engine.begin() as connection:
            await connection.run_sync(migrate, outbox.settings.names)
        dashboard = Dashboard(outbox, engine, token=TOKEN, mask=["number"], title="Shop outbox")
        opened = open_socket("127.0.0.1", 0)
        web = DashboardServer(dashboard)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Consumer(outbox, engine).run)
            tasks.start_soon(Customers(outbox, engine).keep_ordering)
            async with engine.begin() as connection:
                await connection.execute(text(ENDPOINTS))
            async with anyio.create_task_group() as serving:
                serving.start_soon(web.serve, [opened])
                await anyio.sleep(watched_seconds)
                address = f"http://127.0.0.1:{opened.getsockname()[1]}"
                shown = pages(await what_is_there(engine))
                await anyio.to_thread.run_sync(photograph, address, shown, pictures)
                dashboard.streams.end()
                web.should_exit = True  # cancelled, it would leave its socket open
            tasks.cancel_scope.cancel()
        await engine.dispose()


async def what_is_there(engine: AsyncEngine) -> There:
    """Once there is enough of it: an event that has a cause, and two dead letters."""
    with anyio.fail_after(60):
        while True:
            async with engine.connect() as connection:
                event_id = await connection.scalar(text(THE_EVENT))
                letters = await connection.scalar(text(LETTERS)) or 0
            if event_id and letters > 1:
                return There("mailer", "partner", str(event_id), "order.placed", EDIT)
            await anyio.sleep(0.2)


def photograph(address: str, shown: list[Shown], pictures: Pictures) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        for name, each, options in pictures.of(shown):
            context = browser.new_context(base_url=address, **options)
            page = context.new_page()
            sign_in(page)
            each.open(page)
            if each.name == "overview":
                page.get_by_text("live", exact=True).wait_for()
            page.screenshot(path=pictures.folder / f"{name}.png", full_page=pictures.every_page)
            context.close()
        browser.close()


def sign_in(page: Page) -> None:
    page.goto("/login")
    page.get_by_label("Your name").fill("Grace")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Overview").wait_for()


if __name__ == "__main__":
    chosen = argparse.ArgumentParser(description=__doc__)
    chosen.add_argument("folder", type=Path, nargs="?", default=Path("docs/images"))
    chosen.add_argument("--every-page", action="store_true")
    given = chosen.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    anyio.run(main, Pictures(given.folder, given.every_page))
