"""Programs that run beside a test, as processes, and what they write."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from tests.support import eventually

from .command import ROOT
from .requirements import HIDING, hidden

OURS = ("SA_OUTBOX_", "DATABASE_URL")


def environment(folder: Path, words: list[str], **variables: str) -> dict[str, str]:
    """Nothing of the tests' own settings; of what is installed here, what the *folder* requires."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    file = "requirements-dev.txt" if "dev.py" in words else "requirements.txt"
    path = os.pathsep.join([str(HIDING), str(ROOT)])
    hiding = {"HIDDEN_PACKAGES": " ".join(hidden(folder / file)), "PYTHONPATH": path}
    return kept | hiding | {"PYTHONUNBUFFERED": "1"} | variables


def run(folder: Path, words: list[str], **variables: str) -> str:
    """What a command writes, that ends by itself and well."""
    done = subprocess.run(
        here(words),
        cwd=folder,
        env=environment(folder, words, **variables),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def here(words: list[str]) -> list[str]:
    """With this interpreter, and the programs that are installed beside it."""
    program, *rest = words
    if program == "sa-outbox":
        return [sys.executable, "-m", "sa_outbox", *rest]
    assert program == "python", words
    return [sys.executable, *rest]


class Program:
    """One that runs until it is told to stop."""

    def __init__(self, folder: Path, words: list[str], **variables: str) -> None:
        self.words = words
        self.process = subprocess.Popen(
            here(words),
            cwd=folder,
            env=environment(folder, words, **variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)

    def logged(self, event: str) -> list[dict[str, Any]]:
        """Its lines in JSON about this."""
        found = [json.loads(line) for line in self.lines if line.startswith("{")]
        return [each for each in found if each["event"] == event]

    def waits_for(self, text: str, *, within: float = 30) -> None:
        """Return when a line has *text* in it."""
        eventually(lambda: text in self.text or self.process.poll() is not None, within=within)
        assert text in self.text, self.text

    def ends(self, number: signal.Signals | None = signal.SIGTERM) -> int:
        """Its exit code, after a signal."""
        if number is not None:
            self.process.send_signal(number)
        code = self.process.wait(30)
        self._reader.join(10)
        return code

    @property
    def text(self) -> str:
        return f"{' '.join(self.words)}\n{''.join(self.lines)}"

    def kill(self) -> None:
        self.ends(signal.SIGKILL)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Programs:
    """Those of a test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[Program] = []

    def start(self, words: list[str], **variables: str) -> Program:
        made = Program(self._folder, words, **variables)
        self._started.append(made)
        return made

    def kill(self) -> None:
        for each in self._started:
            each.kill()

    @property
    def text(self) -> str:
        return "\n".join(each.text for each in self._started)


@contextmanager
def programs(folder: Path) -> Iterator[Programs]:
    made = Programs(folder)
    try:
        yield made
    except BaseException as error:
        made.kill()
        error.add_note(made.text)
        raise
    else:
        made.kill()


def ask(
    url: str, body: object = None, method: str | None = None, **headers: str
) -> tuple[int, Any, dict[str, str]]:
    """Status, decoded body and headers of an answer. 0: nobody answers, or not in time."""
    data = None if body is None else json.dumps(body).encode()
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    request = Request(url, data, {"Content-Type": "application/json", **given}, method=method)
    try:
        with urlopen(request, timeout=30) as response:
            return response.status, _decoded(response.read()), _lower(response.headers)
    except HTTPError as error:
        with error:
            return error.code, _decoded(error.read()), {}
    except (URLError, ConnectionError, TimeoutError):
        return 0, None, {}


def _lower(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _decoded(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode()


def is_up(url: str) -> bool:
    return ask(url)[0] == 200


def comes(url: str, **fields: object) -> Any:
    """What is at *url*, once it has these values."""
    found: Any = None

    def has_come() -> bool:
        nonlocal found
        found = ask(url)[1]
        return isinstance(found, dict) and all(found.get(k) == v for k, v in fields.items())

    eventually(has_come, within=20)
    return found
