"""The tutorial is followed to the letter, from an empty folder, in terminals and a browser.

A block with the title of a file is written to it. A block of a terminal is typed there: what it
shows must come, apart from times, ids and ports, and ``...`` stands for anything. What ends has to
end well, and to show nothing else. The numbered steps about the dashboard are made in Chromium; if
there is none, its forms are sent without a browser.

Different from what a reader does: pip is given the wheel of this checkout instead of its name; and
each port is one that is free.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.browser.chromium import FLAGS, chromium
from tests.support import eventually
from tests.support.notices import Notice
from tests.support.packages import build
from tests.support.terminal import Terminal

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "tutorial"
PAGES = [FOLDER / f"{name}.md" for name in ("index", "order", "listeners", "dead-letter", "clock")]

STEP = re.compile(
    r'^```\w+ title="(?P<title>[^"]+)"\n(?P<block>.*?)^```$'
    r"|^\d+\. (?P<click>[^\n]+(?:\n   [^\n]+)*)$",
    re.DOTALL | re.MULTILINE,
)
INSTALLS = "pip install "
"""What pip prints is not in the tutorial."""
BY_NAME = '"sa_outbox['
READERS_OWN = "terminal: yours"
"""Where every command ends."""
PATIENCE = 300.0
"""Seconds for what takes a person two, or pip twenty, on a machine that has much else to do."""
MAX_MINUTES = 15

CHANGING = [
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "(id)"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ"), "(moment)"),
    (re.compile(r"\b\d+\.\d+s\b"), "(seconds)"),
    (re.compile(r"\s+"), " "),
]


def comparable(text: str) -> str:
    for pattern, instead in CHANGING:
        text = pattern.sub(instead, text)
    return text.strip()


def is_shown(line: str, output: str) -> bool:
    pattern = r".*?".join(re.escape(part.strip()) for part in comparable(line).split("..."))
    return any(re.fullmatch(pattern, comparable(each)) for each in output.splitlines())


@dataclass
class Exchange:
    """A command, or none: more output of the one that is running."""

    command: str | None
    shown: list[str] = field(default_factory=list)


def exchanges(block: str) -> list[Exchange]:
    found: list[Exchange] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append(Exchange(line[2:]))
        else:
            found = found or [Exchange(None)]
            found[-1].shown.append(line)
    return found


class Form(HTMLParser):
    """What the form of a page that has a *button* would send, and where."""

    def __init__(self, page: str, button: str) -> None:
        super().__init__()
        self._button = button
        self._open: dict[str, str] = {}
        self._at = self._field = ""
        self.target = ""
        self.fields: dict[str, str] = {}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._open, self._at = {}, given.get("action", "")
        elif tag in ("input", "textarea") and given.get("name"):
            self._open[given["name"]] = given.get("value", "")
            self._field = given["name"] if tag == "textarea" else ""
        elif tag == "button":
            self._field = f"button {given.get('name', '')}={given.get('value', '')}"

    def handle_data(self, data: str) -> None:
        if self._field.startswith("button "):
            if data.strip() == self._button:
                name, value = self._field.removeprefix("button ").split("=")
                self.target, self.fields = (
                    self._at,
                    {**self._open, **({name: value} if name else {})},
                )
        elif self._field:
            self._open[self._field] += data

    def handle_endtag(self, tag: str) -> None:
        self._field = ""


class Reader:
    """Somebody who does what the pages say."""

    def __init__(self, folder: Path, wheel: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._wheel = wheel
        self._stack = stack
        self._terminals: dict[str, Terminal] = {}
        self._first_lines: list[str] = []
        self._ports = {"8000": free_port(), "8001": free_port()}
        self._steps = [step for page in PAGES for step in STEP.finditer(page.read_text())]
        self._clicks: list[str] = []
        self.status = ""
        """What the dashboard said at last."""

    def follow(self) -> None:
        for number, step in enumerate(self._steps):
            if step["click"]:
                if not re.match(r"\[", step["click"]):  # the list of the four stops
                    self._clicks.append(self._here(" ".join(step["click"].split())))
                continue
            self._do_the_clicks()
            self._do(number, step["title"], step["block"])

    def _do(self, number: int, title: str, block: str) -> None:
        if title == "every further terminal":
            self._first_lines = [each.command or "" for each in exchanges(block)]
        elif title.startswith("terminal: "):
            later = [each["block"] for each in self._steps[number + 1 :] if each["title"] == title]
            goes_on = title != READERS_OWN and not any(each.startswith("$ ") for each in later)
            terminal = self._terminal(title)
            spoken = exchanges(self._here(block))
            for each in spoken:
                self._speak(terminal, each, ends=not (goes_on and each is spoken[-1]))
        else:
            (self._folder / title).write_text(block)

    def _terminal(self, title: str) -> Terminal:
        if title not in self._terminals:
            terminal = Terminal(self._folder, environment(), patience=PATIENCE)
            self._stack.callback(terminal.close)
            self._terminals[title] = terminal
            for line in self._first_lines:
                terminal.type(line)
                assert terminal.wait_for_prompt() == ("", 0)
        return self._terminals[title]

    def _speak(self, terminal: Terminal, exchange: Exchange, *, ends: bool) -> None:
        if exchange.command is not None:
            terminal.look_away()
            terminal.type(exchange.command.replace(BY_NAME, f'"{self._wheel}['))
        if exchange.command is not None and ends:
            output, status = terminal.wait_for_prompt()
            assert status == 0, output
            if exchange.command.startswith(INSTALLS):
                return
            lines = [line for line in output.splitlines() if line.strip()]
            shown = [line for line in exchange.shown if line.strip()]
            assert len(lines) == len(shown), output
            for line, said in zip(shown, lines, strict=True):
                assert is_shown(line, said), f"{line!r} is not what came:\n{output}"
            return
        for line in exchange.shown:
            try:
                eventually(lambda line=line: is_shown(line, terminal.output), within=PATIENCE)  # type: ignore[misc]
            except AssertionError:
                raise AssertionError(f"{line!r} did not come:\n{terminal.output}") from None
        terminal.look_away()

    def _do_the_clicks(self) -> None:
        if not self._clicks:
            return
        clicks, self._clicks = self._clicks, []
        path = chromium()
        if path is None:
            self.status = by_hand(self._here("http://127.0.0.1:8001"), clicks)
            return
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
            page = browser.new_page()
            page.set_default_timeout(PATIENCE * 1000)
            for click in clicks:
                in_a_browser(page, click)
            self.status = page.get_by_role("status").inner_text()
            browser.close()

    def without_the_line(self, name: str, word: str) -> tuple[str, int]:
        """The page's last command, after a line of a file was removed."""
        file = self._folder / name
        lines = file.read_text().splitlines(keepends=True)
        (unwanted,) = (line for line in lines if word in line)
        file.write_text("".join(line for line in lines if line != unwanted))
        terminal = self._terminals[READERS_OWN]
        terminal.type("pytest -q")
        return terminal.wait_for_prompt()

    def _here(self, text: str) -> str:
        for port, free in self._ports.items():
            text = text.replace(port, str(free))
        return text


def in_a_browser(page: Page, step: str) -> None:
    if address := re.match(r"Open <(.+?)>", step):
        page.goto(address[1])
        for listener in re.findall(r"`(\w+)`", step):
            expect(page.get_by_role("link", name=listener).first).to_be_visible()
    elif click := re.match(r"Click \*\*(.+?)\*\*", step):
        name = click[1]
        link = page.get_by_role("link", name=name, exact=True)
        link.or_(page.get_by_role("button", name=name, exact=True)).first.click()
    elif change := re.match(r"In \*\*(.+?)\*\*, replace `(.+)` with `(.+)`", step):
        box = page.get_by_label(change[1])
        before = box.input_value()
        assert change[2] in before
        box.fill(before.replace(change[2], change[3]))
    elif text := re.match(r"In \*\*(.+?)\*\*, write `(.+)`", step):
        page.get_by_label(text[1]).fill(text[2])
    else:
        raise AssertionError(f"nobody knows how to {step}")


def by_hand(address: str, steps: list[str]) -> str:
    """The change, made with the dashboard's own forms and without a browser."""
    (change,) = (each for each in steps if "replace" in each)
    old, new = re.findall(r"`(.+?)`", change)
    with httpx2.Client(base_url=address, follow_redirects=True, timeout=PATIENCE) as client:
        edit = Form(client.get("/dead-letters/1/edit").text, "Compare")
        edited = edit.fields | {"payload": edit.fields["payload"].replace(old, new)}
        save = Form(client.post(edit.target, data=edited).text, "Save and replay")
        done = client.post(save.target, data=save.fields | {"why": "she called"}).text
    found = re.search(r'role="status">([^<]+)<', done)
    assert found is not None, done
    return found[1]


def environment() -> dict[str, str]:
    """Of a person who has just opened a terminal: nothing of ours."""
    ours = ("SA_OUTBOX_", "PYTEST_", "PYTHON", "DATABASE_URL", "VIRTUAL_ENV", "COLUMNS")
    own = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    own["VIRTUAL_ENV_DISABLE_PROMPT"] = "1"  # the prompt is how the end of a command is seen
    own["PATH"] = f"{Path(sys.base_prefix) / 'bin'}:{own['PATH']}"  # python3 is the one at hand
    if "SA_OUTBOX_EMBEDDED_BINDIR" in os.environ:
        own["SA_OUTBOX_EMBEDDED_BINDIR"] = os.environ["SA_OUTBOX_EMBEDDED_BINDIR"]
    return own


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        return int(opened.getsockname()[1])


@pytest.fixture
def folder() -> Iterator[Path]:
    """Empty, and open to the account that runs PostgreSQL for root."""
    with TemporaryDirectory(prefix="tutorial-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def reader(folder: Path, tmp_path: Path) -> Iterator[Reader]:
    wheel = build(ROOT, "wheel", tmp_path)
    with ExitStack() as stack:
        yield Reader(folder, wheel, stack)


@pytest.mark.long
@pytest.mark.timeout(60 * MAX_MINUTES)
def test_from_an_empty_folder_every_step_of_the_tutorial_works_as_written(
    reader: Reader, notice: Notice
) -> None:
    begun = time.monotonic()
    reader.follow()
    took = time.monotonic() - begun
    notice(f"the tutorial, installation included: {took:.0f} seconds")

    assert took < 60 * MAX_MINUTES
    assert reader.status == "1 replayed."
    (word,) = re.findall(r"Remove the line with\s+`(.+?)`", PAGES[-1].read_text())
    output, status = reader.without_the_line("test_shop.py", word)
    assert status == 1, output
    assert "1 failed, 1 passed" in output


@pytest.mark.skipif(chromium() is None, reason="no Chromium: its forms are sent without a browser")
def test_the_steps_in_the_dashboard_are_made_in_a_browser() -> None:
    steps = re.findall(r"^\d+\. (.+)$", (FOLDER / "dead-letter.md").read_text(), re.MULTILINE)

    assert [step.split()[0] for step in steps].count("Click") >= 4
    assert steps[-1] == "Click **Save and replay**."


def test_the_tutorial_is_short() -> None:
    words = sum(len(re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M).split())
                for page in PAGES)  # fmt: skip

    assert words < 1_200
