"""The program's end of the pipe to its supervisor."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from sa_outbox.errors import EmbeddedError

_STOP_SECONDS = 45.0


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the supervisor reports when the server is ready."""

    port: int
    pid: int
    password: str = field(repr=False)
    run: str
    home: str


class Link:
    """One supervisor, from its start to its end."""

    def __init__(self) -> None:
        if not sys.executable:
            raise EmbeddedError("no Python interpreter known that could watch over the server")
        self.facts: Facts | None = None
        self._supervisor = subprocess.Popen(  # noqa: S603 - this interpreter, our script
            # -I: nothing of the user's environment or folder is imported. -S: start quickly.
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("supervisor.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Unbuffered: a buffer has a lock, and a fork made while another thread holds it could
            # never close its copy of the pipe.
            bufsize=0,
            cwd="/",
            # Ctrl-C in the terminal is for the program; it decides what happens to the server.
            start_new_session=True,
        )

    def submit(self, plan: dict[str, object]) -> None:
        """Pass on the plan and wait for the report."""
        to_supervisor, from_supervisor = self._pipes()
        with contextlib.suppress(BrokenPipeError):
            to_supervisor.write(json.dumps(plan).encode() + b"\n")
        line = from_supervisor.readline()
        if not line.startswith(b"{"):
            said = (line + from_supervisor.read()).decode(errors="replace").strip()
            raise EmbeddedError(f"the supervisor of the server ended: {said}")
        report = json.loads(line)
        if "error" in report:
            raise EmbeddedError(report["error"])
        self.facts = Facts(**report)

    def wait(self) -> None:
        self._supervisor.wait()

    def end(self) -> None:
        """Have the server stopped, and return when it is."""
        self._close()
        try:
            self._supervisor.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()
        if self._supervisor.returncode < 0 and self.facts is not None:
            _stop_without_supervisor(self.facts)

    def forget(self) -> None:
        """In a fork: drop the copy of the pipe; the supervisor is the parent's child."""
        self._close()
        # Otherwise subprocess would warn, at the end of the fork, about a child that is not its
        # own.
        self._supervisor.returncode = 0

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        if self._supervisor.stdin is None or self._supervisor.stdout is None:
            raise AssertionError
        return self._supervisor.stdin, self._supervisor.stdout

    def _close(self) -> None:
        for pipe in self._pipes():
            pipe.close()


def _stop_without_supervisor(facts: Facts) -> None:
    """Someone killed the supervisor: do its work."""
    pid_file = Path(facts.home) / "pgdata" / "postmaster.pid"
    deadline = time.monotonic() + _STOP_SECONDS
    with contextlib.suppress(OSError, ValueError, IndexError):
        # The file shows whose number it is; a number alone may belong to another process by now.
        if int(pid_file.read_text().splitlines()[0]) == facts.pid:
            os.kill(facts.pid, signal.SIGINT)
            while pid_file.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
    shutil.rmtree(facts.run, ignore_errors=True)
