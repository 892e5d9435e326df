"""The site as its readers use it: its search, and its button that copies.

What newcomers ask is answered by the first or second hit of the site's own search.
The site is built, served, and asked in a browser: its own index, its own engine, its own order of
hits. Typed is the whole question, as somebody would ask a colleague. The engine finds sections that
have every word of it: zensical.toml names the words and endings that do not count. A hit answers if
it is on the page that has the answer, or in the section of questions.md that links to that page.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote_plus, urljoin, urlsplit
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, Page, expect

from .conftest import PATIENCE

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
QUESTIONS = ROOT / "tests" / "docs" / "questions.toml"
HELD_OUT = QUESTIONS.with_stem("questions_held_out")
ANSWERS_WITHIN = 20_000
"""Milliseconds, of which it takes some twenty."""
MAX_MISSED = 2
"""Of each list of questions."""


@dataclass(frozen=True)
class Question:
    ask: str
    answered_by: list[str]
    asked: str = ""

    @property
    def addresses(self) -> set[str]:
        return {
            f"/{page}".removesuffix(".md").removesuffix("/index") + "/" for page in self.answered_by
        }


def questions(file: Path) -> list[Question]:
    entries = tomllib.loads(file.read_text())["questions"]
    return [Question(**entry) for entry in entries]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address. Built in a folder of its own, of the pages as they are."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "zensical.toml", folder)
    shutil.copytree(ROOT / "docs", folder / "docs")
    subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    handler = partial(Quiet, directory=str(folder / "site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def answers(site: str) -> dict[str, set[str]]:
    """Of each section of questions.md, by its address: the pages that it links to."""
    with urlopen(f"{site}/questions/") as answer:
        sections = answer.read().decode().partition("</article>")[0].split('<h3 id="')[1:]
    found = {}
    for each in sections:
        name, _, rest = each.partition('"')
        links = re.findall(r'href="([^"#]+)', rest)
        found[f"/questions/#{name}"] = {
            urlsplit(urljoin("/questions/", link)).path for link in links
        }
    return found


@pytest.fixture
def page(browser: Browser, site: str) -> Iterator[Page]:
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(site)
    page.get_by_role("button", name="Search").first.click()
    yield page
    context.close()


def hits(page: Page, typed: str) -> list[str]:
    """The addresses of what is found, best first."""
    dialog = page.locator("dialog[open]")
    box, how_many = dialog.get_by_role("combobox"), dialog.get_by_role("status")
    box.fill("")
    expect(how_many).to_be_empty()
    box.fill(typed)
    found = dialog.get_by_role("option")
    try:
        # It says "No results" until it has some.
        expect(how_many).to_have_text(re.compile(r"\d results?$"), timeout=ANSWERS_WITHIN)
    except AssertionError:
        return []
    # A hit carries the words it was found by.
    expect(found.first).to_have_attribute("href", re.compile(re.escape(f"?h={quote_plus(typed)}")))
    parts = [urlsplit(link.get_attribute("href") or "") for link in found.all()]
    return [each.path + (f"#{each.fragment}" if each.fragment else "") for each in parts]


@pytest.mark.parametrize("file", [QUESTIONS, HELD_OUT], ids=lambda file: file.stem)
def test_all_but_two_questions_are_answered_by_the_first_or_second_hit(
    page: Page, answers: dict[str, set[str]], file: Path
) -> None:
    missed = []
    for question in questions(file):
        found = hits(page, question.ask)[:2]
        pages = {each.partition("#")[0] for each in found}
        pages |= {link for each in found for link in answers.get(each, ())}
        if not question.addresses & pages:
            missed.append(f"{question.ask}: {found}, not {question.answered_by}")

    assert len(missed) <= MAX_MISSED, "\n".join(missed)


def test_what_is_for_contributors_is_not_in_the_index(page: Page) -> None:
    everything = [each for typed in ("room", "walk", "queue") for each in hits(page, typed)]

    assert everything
    assert [each for each in everything if each.startswith("/internals/")] == []


def test_a_name_of_the_reference_is_found(page: Page) -> None:
    pages = {each.partition("#")[0] for each in hits(page, "AsyncOutboxSession")}

    assert "/reference/sa_outbox/" in pages


def test_what_is_copied_from_a_terminal_is_what_one_types(browser: Browser, site: str) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{site}/tutorial/order/")
    terminal = page.locator(".highlight").filter(has_text="sa-outbox events list")
    terminal.get_by_role("button").click()

    page.wait_for_function("navigator.clipboard.readText().then(text => text !== '')")
    copied = page.evaluate("navigator.clipboard.readText()").split("\n")
    context.close()

    assert copied[0].startswith('curl -X POST "http')
    assert [line for line in copied[1:] if line] == ["sa-outbox events list"]
