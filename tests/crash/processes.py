"""Consumer processes that start quickly: forked from one that has loaded the package.

They are real processes, with a death of their own. A Python that loads SQLAlchemy first takes most
of a second of a core, and tests of kills start hundreds of them. That the command itself starts is
for ``tests/postgres/test_consume_command.py`` to show.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

_context = get_context("forkserver")
_context.set_forkserver_preload(
    ["sa_outbox.consume.process", "sqlalchemy.dialects.postgresql.asyncpg", "asyncpg", "uvloop"]
)


class ConsumerProcess:
    """``python -m sa_outbox.consume APP`` with these variables, as ``subprocess.Popen`` has it."""

    def __init__(self, app: str, environment: dict[str, str]) -> None:
        reading, writing = _context.Pipe(duplex=False)
        self._process = _context.Process(
            target=_consume, args=(app, os.environ | environment, writing)
        )
        self._process.start()
        writing.close()
        self.output = os.fdopen(os.dup(reading.fileno()), encoding="utf-8", errors="replace")
        """All that it writes; at its end when the process is."""
        reading.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(["consume"], timeout or 0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _consume(app: str, environment: dict[str, str], output: Connection) -> None:
    """In the new process."""
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    output.close()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    from sa_outbox.consume.command import command  # noqa: PLC0415 - loaded already

    sys.argv = ["consume", app]
    try:
        command()
    finally:
        atexit._run_exitfuncs()  # a child of multiprocessing does without them
