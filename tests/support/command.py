"""A consumer process of a small program, and what it writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

from tests.support import eventually

ROOT = Path(__file__).parent.parent.parent


class Command:
    """``python -m sa_outbox.consume`` in a folder of its own; its lines are read as they come."""

    def __init__(
        self,
        folder: Path,
        words: list[str],
        environment: dict[str, str] | None = None,
        *,
        shell: str = "%s",
        stdout: int = subprocess.PIPE,
    ) -> None:
        """*shell*: what a shell does around the command; *stdout*: a pipe that the test reads."""
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("SA_OUTBOX_") and name != "DATABASE_URL"
        }
        command = [sys.executable, "-m", "sa_outbox.consume", *words]
        if shell != "%s":
            command = ["sh", "-c", shell % '"$@"', "sh", *command]
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=clean | {"PYTHONPATH": str(ROOT)} | (environment or {}),
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.out: list[str] = []
        self.err: list[str] = []
        self._readers = [
            self._read(stream, lines)
            for stream, lines in ((self.process.stdout, self.out), (self.process.stderr, self.err))
            if stream is not None
        ]

    def lines(self, event: str = "", **values: object) -> list[dict[str, Any]]:
        """What it has logged: all, or those with this text and these values."""
        logged = [json.loads(line) for line in self.out]
        return [
            line
            for line in logged
            if event in ("", line["event"])
            and all(line.get(name) == value for name, value in values.items())
        ]

    def says(self, event: str, **values: object) -> dict[str, Any]:
        """Wait for a line of the log."""
        eventually(
            lambda: self.lines(event, **values) or self.process.poll() is not None, within=30
        )
        found = self.lines(event, **values)
        assert found, f"no line {event!r} {values}\n{self.text}"
        return found[0]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ends(self, *, within: float = 30.0) -> int:
        """Wait for its exit code, and for all that it has written."""
        code = self.process.wait(within)
        for each in self._readers:
            each.join(10)
        return code

    @property
    def text(self) -> str:
        return "".join([*self.out, *self.err])

    def kill(self) -> None:
        self.process.kill()
        self.ends()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def _read(self, stream: IO[str], lines: list[str]) -> threading.Thread:
        def read() -> None:
            for line in stream:
                lines.append(line)  # noqa: PERF402 - one by one, for those who wait

        reader = threading.Thread(target=read)
        reader.start()
        return reader
