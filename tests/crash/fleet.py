"""Consumer processes that are killed, stopped and started again."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.crash.processes import ConsumerProcess

STOPS_WITHIN = 30.0


class Member:
    """One consumer process. Its log is kept, and shown by pytest when a test fails."""

    def __init__(self, app: str, environment: dict[str, str]) -> None:
        self.process = ConsumerProcess(app, environment)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def said(self, what: str) -> bool:
        return any(what in line for line in self.lines)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOPS_WITHIN)

    def close(self) -> None:
        if self.is_alive:
            self.process.send_signal(signal.SIGCONT)
            self.kill()
        self._reader.join(5)
        self.process.output.close()

    def _read(self) -> None:
        for line in self.process.output:
            self.lines.append(line)
            print(f"[{self.pid}] {line}", end="")  # noqa: T201 - for the report of a failure


class Fleet:
    def __init__(self, app: str, dsn: str, **settings: float) -> None:
        self._app = app
        self._environment = {"SA_OUTBOX_DATABASE_URL": dsn} | {
            f"SA_OUTBOX_{name.upper()}": str(value) for name, value in settings.items()
        }
        self.members: list[Member] = []
        self.deaths = 0

    def start(self, **environment: str) -> Member:
        member = Member(self._app, self._environment | environment)
        self.members.append(member)
        return member

    def replace_the_dead(self) -> None:
        """What a supervisor does."""
        for member in [each for each in self.members if not each.is_alive]:
            self.deaths += 1
            self.members.remove(member)
            member.close()
            self.start()


@contextmanager
def fleet(app: str, dsn: str, **settings: float) -> Iterator[Fleet]:
    """Processes of *app* with these settings; none is left behind."""
    members = Fleet(app, dsn, **settings)
    try:
        yield members
    finally:
        for each in members.members:
            each.close()
