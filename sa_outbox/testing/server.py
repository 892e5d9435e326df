"""One PostgreSQL for a test run, and a template database on it, whatever number of processes there
are.

The processes of a run (pytest-xdist) share a folder. The first one that needs the server starts it
and writes its address there; whoever uses it holds a shared lock, which ends with its process. The
one that started it stops it at its own end, once nobody else holds the lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, make_url
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from sa_outbox.embedded import EmbeddedPostgres
from sa_outbox.schema.connect import dsn_of
from sa_outbox.sql.server.databases import copy_database, drop_database

from .loop_thread import run_to_its_end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sqlalchemy import TextClause
    from sqlalchemy.ext.asyncio import AsyncEngine

ADDRESS_VARIABLE = "SA_OUTBOX_TEST_DATABASE_URL"
"""Environment variable: the address of a server to use instead, for a role that may create
databases."""


class RunServer:
    """The server of the run whose processes share *folder*."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._state = folder / "server.json"
        self._turn = folder / "turn.lock"
        self._users = os.open(folder / "users.lock", os.O_RDWR | os.O_CREAT, 0o600)
        self._embedded: EmbeddedPostgres | None = None
        self._is_owner = False

    def url(self) -> str:
        """The address of its maintenance database. Starts the server if nobody has."""
        with self._alone():
            known = self._read()
            if not known:
                known = {"url": os.environ.get(ADDRESS_VARIABLE) or self._start()}
                self._is_owner = True
                self._write(known)
            fcntl.flock(self._users, fcntl.LOCK_SH)
            url: str = known["url"]
            return url

    def template(self, server_url: str, prepare: Callable[[URL], None]) -> str:
        """The name of a database that *prepare* has filled. Called for one process of the run."""
        with self._alone():
            known = self._read()
            if "template" not in known:
                name = f"outbox_template_{secrets.token_hex(6)}"
                administer(server_url, copy_database(name, "template0"))
                self._write({**known, "template": name})
                try:
                    prepare(at(server_url, name))
                except BaseException:
                    self._write(known)
                    administer(server_url, drop_database(name))
                    raise
                known = self._read()
            found: str = known["template"]
            return found

    def stop(self) -> None:
        """Stop it, if this process started it, when no other process uses it any more."""
        fcntl.flock(self._users, fcntl.LOCK_UN)
        while self._is_owner:
            fcntl.flock(self._users, fcntl.LOCK_EX)  # waits for the others
            fcntl.flock(self._users, fcntl.LOCK_UN)
            with self._alone():
                try:
                    fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue  # another process has come
                self._end()
        os.close(self._users)

    def _start(self) -> str:
        self._embedded = EmbeddedPostgres()
        self._embedded.start()
        return self._embedded.url()

    def _end(self) -> None:
        self._is_owner = False
        known = self._read()
        self._state.unlink(missing_ok=True)
        if self._embedded is not None:
            self._embedded.stop()
        elif "template" in known:
            administer(known["url"], drop_database(known["template"]))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        lock = os.open(self._turn, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _read(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self._state.read_text())
        except FileNotFoundError:
            return {}
        return found

    def _write(self, known: dict[str, Any]) -> None:
        self._state.touch(mode=0o600)  # it contains a password
        self._state.write_text(json.dumps(known))


def at(server_url: str, database: str) -> URL:
    """The address of a database on the server, without a driver."""
    return make_url(server_url).set(drivername="postgresql", database=database)


def async_engine(url: URL, **options: Any) -> AsyncEngine:
    """Without a pool: each test may have a loop of its own, and a connection belongs to one."""
    bare = URL.create("postgresql+asyncpg", *url[1:6])
    # The parameters of a URL (sslmode) are libpq's: asyncpg reads them in a DSN only.
    arguments = {"dsn": dsn_of(url)}
    return create_async_engine(bare, poolclass=NullPool, connect_args=arguments, **options)


def administer(server_url: str, statement: TextClause) -> None:
    """Run a statement that can't be in a transaction."""

    async def run() -> None:
        engine = async_engine(make_url(server_url), isolation_level="AUTOCOMMIT")
        async with engine.connect() as connection:
            await connection.execute(statement)

    run_to_its_end(run)
