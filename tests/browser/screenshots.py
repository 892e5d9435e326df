"""Pictures of the dashboard for its page: ``python -m tests.browser.screenshots docs/images``.

With ``ALL_PAGES=1`` in the environment those of every page, light, dark and on a phone, to look at.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
from playwright.async_api import Browser, async_playwright
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox.consumer import Consumer
from sa_outbox.dashboard import Dashboard
from sa_outbox.dashboard.server import DashboardServer, open_socket
from sa_outbox.embedded import EmbeddedPostgres
from sa_outbox.schema import migrate

from .chromium import FLAGS, chromium
from .shop import ENDPOINTS, Customers, shop

TOKEN = "only-for-these-pictures"
WATCHED_SECONDS = float(os.environ.get("WATCHED_SECONDS", "75"))
WIDE: dict[str, Any] = {"viewport": {"width": 1240, "height": 900}}
DARK = {**WIDE, "color_scheme": "dark"}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}}
PICTURES = [
    ("dashboard", "/", WIDE),
    ("dashboard-dark", "/", DARK),
    ("dashboard-phone", "/", PHONE),
    ("dashboard-compare", "/dead-letters/1/edit", WIDE),
]
EVERY_PAGE = {
    "overview": "/",
    "listeners": "/listeners",
    "listener": "/listener?name=mailer",
    "durations": "/durations",
    "deliveries": "/deliveries",
    "events": "/events",
    "event": "/events?type=points.granted",
    "dead-letters": "/dead-letters",
    "dead-letter-groups": "/dead-letters?group=error",
    "dead-letter": "/dead-letters/1",
    "compare": "/dead-letters/1/edit",
    "crons": "/crons",
    "endpoints": "/endpoints",
    "endpoint": "/endpoint?name=partner",
    "catalogue": "/catalogue",
    "audit": "/audit",
    "login": "/login",
    "fault": "/nowhere",
}
if os.environ.get("ALL_PAGES"):  # to look at, not for the documentation
    LOOKS = {"light": WIDE, "dark": DARK, "phone": PHONE}
    PICTURES = [
        (f"{name}-{look}", path, options)
        for name, path in EVERY_PAGE.items()
        for look, options in LOOKS.items()
    ]


async def main(folder: Path) -> None:
    with EmbeddedPostgres() as server:
        outbox, engine = shop(), create_async_engine(server.url("asyncpg"))
        async with engine.begin() as connection:
            await connection.run_sync(migrate, outbox.settings.names)
        dashboard = Dashboard(outbox, engine, token=TOKEN, mask=["number"], title="Shop outbox")
        opened = open_socket("127.0.0.1", 0)
        web = DashboardServer(dashboard)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(web.serve, [opened])
            tasks.start_soon(Consumer(outbox, engine).run)
            tasks.start_soon(Customers(outbox, engine).keep_ordering)
            async with engine.begin() as connection:
                await connection.execute(text(ENDPOINTS))
            await anyio.sleep(WATCHED_SECONDS)
            await photograph(f"http://127.0.0.1:{opened.getsockname()[1]}", folder)
            dashboard.streams.end()
            tasks.cancel_scope.cancel()
        await engine.dispose()


async def photograph(address: str, folder: Path) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        for name, path, options in PICTURES:
            await visit(browser, address, folder / f"{name}.png", path, options)
        await browser.close()


async def visit(
    browser: Browser, address: str, file: Path, path: str, options: dict[str, Any]
) -> None:
    context = await browser.new_context(**options)
    page = await context.new_page()
    await page.goto(f"{address}/login")
    await page.get_by_label("Your name").fill("Grace")
    await page.get_by_label("Token").fill(TOKEN)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url(f"{address}/")
    await page.goto(address + path)
    if path == "/":
        await page.get_by_text("live", exact=True).wait_for()
    if path.endswith("points.granted"):  # one that has a cause
        await page.get_by_role("cell").get_by_role("link").first.click()
        await page.get_by_role("heading", name="Causation").wait_for()
    if path.endswith("/edit"):
        editor = page.get_by_label("Payload")
        await editor.fill((await editor.input_value()).replace(".invalid", ".com"))
        await page.get_by_role("button", name="Compare").click()
        await page.get_by_role("button", name="Save and replay").wait_for()
    await page.screenshot(path=file, full_page=bool(os.environ.get("ALL_PAGES")))
    await context.close()


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images")
    target.mkdir(parents=True, exist_ok=True)
    anyio.run(main, target)
