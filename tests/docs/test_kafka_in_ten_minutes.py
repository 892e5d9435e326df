"""The page is followed: its programs and its commands, as processes, and what it says they show.

Kafka is librdkafka's mock cluster.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, create_engine, text

from tests.support import eventually, kafka
from tests.support.command import ROOT

PAGE = (ROOT / "docs" / "kafka-in-ten-minutes.md").read_text()
NOT_HERE = ("pip", "docker", "export", "python -m sa_outbox.embedded")
"""Commands that bring what the test has already."""


def programs() -> dict[str, str]:
    """Each block of Python belongs to the file that was named last."""
    found = {}
    for block in re.finditer(r"^```py\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE):
        found[re.findall(r"`(\w+\.py)`", PAGE[: block.start()])[-1]] = block[1]
    return found


def commands() -> list[str]:
    return [
        line[2:]
        for line in PAGE.splitlines()
        if line.startswith("$ ") and not line[2:].startswith(NOT_HERE)
    ]


def shown(command: str) -> list[str]:
    """What the page says that it writes."""
    after = PAGE.split(f"$ {command}\n", 1)[1]
    return after.split("```", 1)[0].splitlines()


class Terminal:
    """A folder with the programs of the page, and processes that run there."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        self._begun: list[tuple[subprocess.Popen[str], threading.Thread]] = []
        for name, code in programs().items():
            (folder / name).write_text(code)

    def run(self, command: str) -> None:
        done = subprocess.run(
            self._words(command),
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def begin(self, command: str) -> tuple[subprocess.Popen[str], list[str]]:
        """One that goes on, and its lines as they come."""
        lines: list[str] = []
        process = subprocess.Popen(
            self._words(command),
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        stream: Any = process.stdout
        reader = threading.Thread(
            target=lambda: lines.extend(line.rstrip() for line in iter(stream.readline, ""))
        )
        reader.start()
        self._begun.append((process, reader))
        return process, lines

    def end(self) -> None:
        for process, reader in self._begun:
            process.kill()
            process.wait()
            reader.join()
            if process.stdout is not None:
                process.stdout.close()

    def _words(self, command: str) -> list[str]:
        program, *words = shlex.split(command)
        if program == "sa-outbox":
            return [sys.executable, "-m", "sa_outbox", *words]
        assert program == "python"
        return [sys.executable, *words]


@pytest.fixture
def url(new_database: Callable[[], URL]) -> URL:
    return new_database()


@pytest.fixture
def terminal(url: URL, tmp_path: Path) -> Iterator[Terminal]:
    with kafka.cluster() as cluster:
        cluster.create("orders", 3)
        address = url.render_as_string(hide_password=False)
        made = Terminal(tmp_path, {"DATABASE_URL": address, "KAFKA": cluster.addresses})
        try:
            yield made
        finally:
            made.end()


@pytest.mark.long
def test_the_page_leads_to_what_it_promises(terminal: Terminal, url: URL) -> None:
    migrate, shop, consume, watch, ship, rewind = commands()
    terminal.run(migrate)
    terminal.run(shop)
    consumer, _ = terminal.begin(consume)
    _, watched = terminal.begin(watch)
    eventually(lambda: len(watched) == 3, within=40)
    assert sorted(watched) == sorted(shown(watch))
    of_ann = [each for each in watched if " ann " in each]
    assert of_ann == [each for each in shown(watch) if " ann " in each]

    shipping, shipped = terminal.begin(ship)
    eventually(lambda: len(shipped) == 3, within=40)
    assert [each.split()[0] for each in shipped] == [each.split()[0] for each in shown(ship)]
    assert parcels(url) == [("ann", "tea"), ("ann", "water"), ("ben", "coffee")]

    terminal.run(f"{rewind} --yes")
    eventually(lambda: len(watched) == 6, within=40)
    eventually(lambda: len(shipped) == 6, within=40)
    assert [each.split()[0] for each in shipped] == ["new"] * 3 + ["seen"] * 3
    assert sorted(each.split()[1] for each in shipped[:3]) == sorted(
        each.split()[1] for each in shipped[3:]
    )

    shipping.kill()
    shipping.wait()
    terminal.run(f"{rewind} --yes")
    terminal.run(shop)
    _, again = terminal.begin(ship)
    eventually(lambda: sum(each.startswith("new") for each in again) == 3, within=40)
    assert len(parcels(url)) == 6

    consumer.send_signal(signal.SIGTERM)
    assert consumer.wait(30) == 0


def parcels(url: URL) -> list[tuple[str, str]]:
    engine = create_engine(url.set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT customer, product FROM parcels ORDER BY 1, 2"))
        found = [(row.customer, row.product) for row in rows]
    engine.dispose()
    return found
