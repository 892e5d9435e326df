"""``sa-outbox top`` on a terminal, as a person sees it."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from sqlalchemy import URL, Engine, text

from tests.support import eventually

ROWS, COLUMNS = 24, 80
HOME, BEGUN, ENDED = "\x1b[H", "\x1b[?1049h", "\x1b[?1049l"


class Top:
    """The command on a terminal of 24 rows, and what it has written there."""

    def __init__(self, address: str) -> None:
        self.terminal, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        clean = {
            name: value
            for name, value in os.environ.items()
            if name not in ("COLUMNS", "LINES", "NO_COLOR")
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sa_outbox", "top", "--interval", "0.2"],
            env={**clean, "SA_OUTBOX_DATABASE_URL": address, "TERM": "xterm"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        self._written = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        return self._written.decode(errors="replace").replace("\r\n", "\n")

    @property
    def screen(self) -> list[str]:
        """The lines of the last picture that is complete."""
        picture = [each for each in self.text.split(HOME)[1:] if "\x1b[J" in each]
        if not picture:
            return []
        shown = picture[-1].partition("\x1b[J")[0]
        for bold in ("\x1b[1m", "\x1b[0m", "\x1b[K"):
            shown = shown.replace(bold, "")
        return shown.split("\n")

    def press(self, key: str) -> None:
        os.write(self.terminal, key.encode())

    def ends(self) -> int:
        return self.process.wait(20)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.slave)  # the last one: the reader comes to an end
        self._reader.join(10)
        os.close(self.terminal)

    def _read(self) -> None:
        with suppress(OSError):
            while piece := os.read(self.terminal, 65536):
                self._written += piece


@pytest.fixture
def top(engine: Engine, migrated_url: URL) -> Iterator[Top]:
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO outbox (event_id, event_type, payload) SELECT gen_random_uuid(), 'a',"
                " '{}' FROM generate_series(1, 3)"
            )
        )
        connection.execute(
            text(
                "INSERT INTO outbox_listeners (name, last_processed_id, last_error,"
                " last_error_code, last_error_at) SELECT 'listener_' || lpad(n::text, 2, '0'),"
                " CASE n WHEN 50 THEN 0 ELSE 3 END, 'no', 'boom', clock_timestamp()"
                " FROM generate_series(1, 60) AS n"
            )
        )
    found = Top(migrated_url.set(drivername="postgresql").render_as_string(hide_password=False))
    yield found
    found.close()


def test_what_needs_a_look_fits_onto_the_screen_with_its_headers(top: Top) -> None:
    eventually(lambda: top.screen)

    screen = top.screen
    assert len(screen) <= ROWS
    assert max(map(len, screen)) <= COLUMNS
    assert screen[3].startswith("LISTENER")
    assert screen[4].startswith("listener_50  behind")
    assert any(each.startswith("and ") and "more: sa-outbox status" in each for each in screen)
    assert any(each.startswith("LAST ERROR OF") for each in screen)
    assert screen[-1] == "q quits"


def test_it_is_drawn_again_with_what_has_changed(top: Top, engine: Engine) -> None:
    eventually(lambda: top.screen)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM outbox_listeners WHERE name <> 'listener_07'"))

    eventually(lambda: top.screen[4].startswith("listener_07  caught up"))

    assert not any("listener_50" in each for each in top.screen)


@pytest.mark.parametrize("how", ["q", "interrupt"])
def test_the_terminal_is_as_it_was_before(top: Top, how: str) -> None:
    eventually(lambda: top.screen)
    if how == "q":
        top.press("q")
    else:
        top.process.send_signal(signal.SIGINT)

    assert_it_left_no_trace(top)


def test_an_interrupt_while_it_asks_the_database_ends_it_as_quietly(
    top: Top, engine: Engine
) -> None:
    eventually(lambda: top.screen)
    waits = text(
        "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'outbox_listeners'::regclass"
    )
    with engine.begin() as connection:
        connection.execute(text("LOCK outbox_listeners"))
        eventually(lambda: connection.scalar(waits))

        top.process.send_signal(signal.SIGINT)

        assert_it_left_no_trace(top)


def assert_it_left_no_trace(top: Top) -> None:
    assert top.ends() == 0
    eventually(lambda: top.text.endswith(ENDED))
    assert top.text.count(BEGUN) == 1
    assert termios.tcgetattr(top.slave) == top.before
    assert "Traceback" not in top.text


def test_a_database_that_is_gone_for_a_while_is_told_and_asked_again(
    top: Top, engine: Engine
) -> None:
    eventually(lambda: top.screen)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE outbox_ranges RENAME TO elsewhere"))
    try:
        eventually(lambda: any(each.startswith("since then: ") for each in top.screen))
        assert any(each.startswith("listener_50") for each in top.screen)
    finally:
        with engine.begin() as connection:
            connection.execute(text("ALTER TABLE elsewhere RENAME TO outbox_ranges"))

    eventually(lambda: not any("since then" in each for each in top.screen))
