"""``sa-outbox demo`` as a process of its own, without a terminal and on one."""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support import eventually

COMMAND = [sys.executable, "-m", "sa_outbox", "demo"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """For what the demo leaves behind. Open to the account that runs postgres for root."""
    folder = Path(tempfile.mkdtemp(prefix="demo-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def environment(folder: Path) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    return clean | {"TMPDIR": str(folder), "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}


def number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    assert found, text
    return int(found[1].replace(",", ""))


def table(text: str) -> dict[str, list[int]]:
    """Position, events, handled, retries and dead letters of each listener, from the summary."""
    rows = re.findall(r"^(billing|mailer|search_index) +([\d, ]+)$", text, re.MULTILINE)
    return {name: [int(each.replace(",", "")) for each in row.split()] for name, row in rows}


def assert_it_adds_up(text: str) -> None:
    orders = number(r"([\d,]+) orders in the database", text)
    assert orders > 0
    assert number(r"([\d,]+) events, ", text) == 2 * orders
    assert number(r"([\d,]+) invoices", text) == orders
    (billing, mailer, search_index) = (row[1:] for row in table(text).values())
    assert billing == [orders, orders, 0, 0]
    assert mailer[:2] == [orders, orders]
    assert mailer[3] == 0
    assert search_index == [2 * orders, 2 * orders - 1, 3, 1]
    assert re.findall(r"attempt (\d)  ValueError: shard \d: order \d+ has no name", text) == [
        *("1", "2", "3", "4")
    ]
    assert "It all adds up." in text


def test_without_a_terminal_it_ends_by_itself_and_adds_up(
    folder: Path, environment: dict[str, str]
) -> None:
    done = subprocess.run(
        [*COMMAND, "--seconds", "2"],
        env=environment | {"FORCE_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert_it_adds_up(done.stdout)
    assert re.search(r"^ +\d+( +[\d,]+){6}$", done.stdout, re.MULTILINE)  # a line per second
    assert list(folder.iterdir()) == []


class OnATerminal:
    """The demo on a terminal, and all that it has written there."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            COMMAND, env=environment, stdin=slave, stdout=slave, stderr=slave
        )
        os.close(slave)
        self._written = b""
        self._hung_up = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def text(self) -> str:
        return self._written.decode(errors="replace").replace("\r\n", "\n")

    def is_at_work(self) -> bool:
        shown = re.search("caught up|at work|to retry", self.text)
        return shown is not None or self.process.poll() is not None

    def ends(self) -> int:
        code = self.process.wait(40)
        self._reader.join(10)
        return code

    def hang_up(self) -> None:
        """As when the window is closed; but the kernel sends no signal, as for nohup."""
        self._hung_up = True

    def close(self) -> None:
        self.process.kill()
        self.ends()

    def _read(self) -> None:
        with suppress(OSError):  # nobody has the other side any more
            while not self._hung_up:
                self._written += os.read(self._master, 65536)
        os.close(self._master)


@pytest.fixture
def on_a_terminal(environment: dict[str, str]) -> Iterator[OnATerminal]:
    terminal = OnATerminal(environment)
    yield terminal
    terminal.close()


@pytest.mark.long
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_on_a_terminal_it_is_live_until_a_signal_ends_it_in_good_order(
    on_a_terminal: OnATerminal, folder: Path, end: signal.Signals
) -> None:
    eventually(on_a_terminal.is_at_work, within=40)
    assert "Ctrl-C to stop" in on_a_terminal.text

    on_a_terminal.process.send_signal(end)

    assert on_a_terminal.ends() == 0
    _, left_the_screen, summary = on_a_terminal.text.partition("\x1b[?1049l")
    assert left_the_screen
    assert "\x1b[?25h" in on_a_terminal.text  # the cursor is there again
    assert_it_adds_up(summary)
    assert list(folder.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("with_signal", [True, False])
def test_a_terminal_that_is_closed_leaves_nothing_behind(
    on_a_terminal: OnATerminal, folder: Path, with_signal: bool
) -> None:
    eventually(on_a_terminal.is_at_work, within=40)

    on_a_terminal.hang_up()
    if with_signal:
        on_a_terminal.process.send_signal(signal.SIGHUP)

    assert on_a_terminal.ends() == (-signal.SIGHUP if with_signal else 1)
    eventually(lambda: list(folder.iterdir()) == [], within=20)
