"""Whether a LISTEN hears anything: on the server itself, and behind a pooler."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg
import pytest
from sqlalchemy import URL, make_url

from sa_outbox.doctor.listen_check import find
from tests.support import eventually

pytestmark = pytest.mark.anyio

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


def way(url: URL) -> Callable[[], Awaitable[Any]]:
    dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)
    return partial(asyncpg.connect, dsn, statement_cache_size=0)


class Deaf:
    """A connection as behind a pooler: it takes everything, and hears nothing."""

    async def add_listener(self, channel: str, hear: object) -> None: ...

    async def execute(self, statement: str) -> None: ...

    def terminate(self) -> None: ...


@pytest.fixture
def pooler(database_url: URL) -> Iterator[URL]:
    """The worker's database behind pgbouncer in transaction mode."""
    if PROGRAM is None:
        pytest.skip("pgbouncer is not installed")
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    target = (
        f"host={database_url.host} port={database_url.port} dbname={database_url.database}"
        f" user={database_url.username} password={database_url.password}"
    )
    text = (
        f"[databases]\npooled = {target}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nauth_type = any\npool_mode = transaction\nunix_socket_dir =\n"
        "default_pool_size = 2\n"
    )
    with TemporaryDirectory() as folder, _started(PROGRAM, Path(folder), text) as process:
        eventually(lambda: _answers(port) or process.poll() is not None, within=30)
        if process.poll() is not None:
            pytest.skip("pgbouncer does not start here")
        yield make_url(f"postgresql://anybody@127.0.0.1:{port}/pooled")


@contextmanager
def _started(program: str, folder: Path, text: str) -> Iterator[subprocess.Popen[bytes]]:
    settings = folder / "pgbouncer.ini"
    settings.write_text(text)
    as_whom: dict[str, Any] = {}
    if os.getuid() == 0:  # it refuses to run as root
        as_whom = {"user": "nobody", "extra_groups": []}
        folder.chmod(0o755)
        settings.chmod(0o644)
    with subprocess.Popen(
        [program, settings], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **as_whom
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_on_the_server_itself_a_notification_is_heard(database_url: URL) -> None:
    assert await find(way(database_url), way(database_url), "outbox", patience=30) == []


async def test_behind_a_pooler_in_transaction_mode_listen_hears_nothing(
    database_url: URL, pooler: URL
) -> None:
    (finding,) = await find(way(pooler), way(pooler), "outbox", patience=0.5)
    assert finding.code == "listen-unheard"
    assert "--listen-url" in finding.fix

    # Producers may well go through it, if consumers listen past it.
    assert await find(way(database_url), way(pooler), "outbox", patience=30) == []


async def test_a_connection_that_hears_nothing_is_told() -> None:
    async def connect() -> Deaf:
        return Deaf()

    (finding,) = await find(connect, connect, "outbox", patience=0.01)

    assert finding.code == "listen-unheard"


async def test_an_address_that_refuses_is_told(database_url: URL) -> None:
    async def refuse() -> Deaf:
        raise ConnectionRefusedError

    (finding,) = await find(refuse, way(database_url), "outbox")

    assert finding.code == "listen-refused"
    assert finding.evidence["error"] == "ConnectionRefusedError"
