"""PgBouncer in transaction mode, in front of a test's database."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from sqlalchemy import URL, make_url

from tests.support import eventually

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


@contextmanager
def pooled(database: URL, **settings: object) -> Iterator[URL]:
    """*database* behind pgbouncer, with further *settings* of it."""
    if PROGRAM is None:
        pytest.skip("pgbouncer is not installed")
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    target = (
        f"host={database.host} port={database.port} dbname={database.database}"
        f" user={database.username} password={database.password}"
    )
    given = {
        "listen_addr": "127.0.0.1",
        "listen_port": port,
        "auth_type": "any",
        "pool_mode": "transaction",
        "unix_socket_dir": "",
        "default_pool_size": 2,
    } | settings
    lines = "".join(f"{name} = {value}\n" for name, value in given.items())
    text = f"[databases]\npooled = {target}\n[pgbouncer]\n{lines}"
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
