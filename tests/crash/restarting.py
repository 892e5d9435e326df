"""A server that crashes as in a power cut, and comes back with the data that it had on disk."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg

from sa_outbox import schema
from sa_outbox.embedded import EmbeddedPostgres
from sa_outbox.settings import Names
from tests.crash import scene, seen


class Restarting:
    """Crashed and started again, at the same address with the same data."""

    def __init__(self, data: Path, settings: Mapping[str, str]) -> None:
        self._data = data
        self._settings = settings
        self._server = EmbeddedPostgres(data=data, settings=settings)
        self._server.start()
        self.dsn = self._server.url()

    @property
    def pid(self) -> int:
        return self._server.pid

    def crash(self) -> None:
        """As a power cut: no shutdown, recovery at the next start."""
        os.kill(self.pid, signal.SIGQUIT)
        self.recover()

    def recover(self) -> None:
        """Start it again, after it has crashed."""
        port = self._server.port
        self._server.wait()
        self._server.stop()
        self._server = EmbeddedPostgres(data=self._data, port=port, settings=self._settings)
        self._server.start()

    def stop(self) -> None:
        self._server.stop()


@contextmanager
def restarting_server(**settings: str) -> Iterator[Restarting]:
    """One with the outbox and the tables of the tests."""
    # Not tmp_path: its parents are closed to the account that runs postgres for root.
    folder = Path(tempfile.mkdtemp(prefix="test_restarting-"))
    folder.chmod(0o755)
    server = Restarting(folder, settings)
    try:
        schema.transact(server.dsn, lambda connection: schema.migrate(connection, Names()))
        with psycopg.connect(server.dsn) as connection:
            connection.execute(seen.TABLE)
        scene.prepare(server.dsn)
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)
