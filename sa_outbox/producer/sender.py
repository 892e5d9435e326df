"""One database's connection for NOTIFY: made the engine's way, kept apart from the engine's pool.

A sender uses the pool's *creator*, so whatever the user configured about connecting applies here
too: driver, ``connect_args``, ``creator``, ``do_connect`` hooks that fetch a token. It uses nothing
else: not one of the pool's connections, since there may be none left; not the pool's hooks, which
are meant for the application's connections; not the engine's, so that NOTIFY appears in nobody's
query log and error count. It keeps the bare driver connection, which keeps no engine alive.

Time limits. An async driver is cancelled after the given limit. A sync driver can't be: its connect
timeout is the user's (libpq's ``connect_timeout``), and data sent into a void fails after
``SILENCE_SECONDS`` where the system supports TCP_USER_TIMEOUT. A server that accepts and then says
nothing blocks the calling thread. That is the notifier's daemon thread: pokes stay owed, and
consumers poll.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sqlalchemy.pool import NullPool

from sa_outbox.sql.server.notify import name_connection, notify

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from sqlalchemy import Engine, Select
    from sqlalchemy.engine.interfaces import DBAPIConnection

APPLICATION_NAME = "sa_outbox notifier"
SILENCE_SECONDS = 5.0
"""Seconds after which unacknowledged bytes mean a lost connection."""
CLOSE_SECONDS = 0.5
"""Seconds an async driver may take to close."""


class Sender:
    """Not thread-safe: everything but the constructor belongs to the notifier's thread."""

    def __init__(self, engine: Engine) -> None:
        url = engine.url
        self.name: str = f"{url.database or 'database'} at {url.host or 'local socket'}"
        """For the log. Not the URL: its password and query must not appear."""
        self._password = url.password
        self._connection: DBAPIConnection | None = None
        self._runner: asyncio.Runner | None = None
        self._statements: dict[tuple[object, str], tuple[str, Any]] = {}

    def send(self, engine: Engine, channel: str, limit: float) -> None:
        """Send one NOTIFY, connecting if needed, or raise what the driver raised."""
        if self._connection is not None:
            # A kept connection may have died from an idle timeout, a restart or an operator. That
            # is not an outage yet: a new connection decides.
            with suppress(Exception):
                return self._send_again(engine, channel, limit)
        self.close()
        try:
            self._call(engine, limit, lambda: self._connect_and_notify(engine, channel))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection, if there is one. Never raises; the next ``send`` connects again."""
        connection, self._connection = self._connection, None
        runner, self._runner = self._runner, None
        if runner is None:
            if connection is not None:
                with suppress(Exception):
                    connection.close()
            return
        if connection is not None:
            try:
                _run_in_greenlet(runner, connection.close, CLOSE_SECONDS)
            except Exception:  # noqa: BLE001 - drivers disagree about what a dead connection raises
                with suppress(Exception):
                    connection.terminate()  # asyncpg's, without I/O
        with suppress(Exception):
            runner.close()

    def explain(self, engine: Engine, error: Exception) -> str:
        """Explain *error* for the log, without anything that may be secret.

        What the network and the server report holds no secret. Other errors, such as a malformed
        DSN or a token service's refusal, may quote their input: only their class is logged.
        """
        explained = (OSError, engine.dialect.loaded_dbapi.OperationalError)
        for each in (error, error.__cause__):
            if isinstance(each, explained) or getattr(each, "sqlstate", None):
                text = str(each).strip().partition("\n")[0]
                if self._password:
                    text = text.replace(str(self._password), "***")
                return f"{type(each).__name__}: {text}" if text else type(each).__name__
        return type(error).__name__

    def _send_again(self, engine: Engine, channel: str, limit: float) -> None:
        driver = getattr(self._connection, "driver_connection", None)
        if self._runner is None or engine.dialect.driver != "asyncpg" or driver is None:
            return self._call(engine, limit, lambda: self._execute(engine, notify, channel))
        # The shortest way: an event is in flight while this runs, and a third of that time was
        # spent on the adapter's greenlet and the runner's bookkeeping.
        sql, parameters = self._rendered(engine, notify, channel)
        loop = self._runner.get_loop()
        loop.run_until_complete(driver.fetch(sql, *parameters, timeout=limit))
        return None

    def _call(self, engine: Engine, limit: float, work: Callable[[], None]) -> None:
        if not engine.dialect.is_async:
            return work()
        if self._runner is None:
            self._runner = _private_runner()
        return _run_in_greenlet(self._runner, work, limit)

    def _connect_and_notify(self, engine: Engine, channel: str) -> None:
        dialect = engine.dialect
        creator = engine.pool._creator  # noqa: SLF001 - recreate() would bring the pool's hooks along
        proxied = NullPool(creator, dialect=dialect).connect()
        proxied.detach()
        connection = self._connection = proxied.dbapi_connection
        assert connection is not None  # noqa: S101 - for mypy: it is None only after invalidation
        dialect.set_isolation_level(connection, "AUTOCOMMIT")
        if not dialect.is_async:
            _limit_silence(connection)
        self._execute(engine, name_connection, APPLICATION_NAME)
        self._execute(engine, notify, channel)

    def _execute(self, engine: Engine, build: Callable[[str], Select[Any]], argument: str) -> None:
        sql, parameters = self._rendered(engine, build, argument)
        assert self._connection is not None  # noqa: S101 - for mypy: both callers have connected
        cursor = self._connection.cursor()
        try:
            cursor.execute(sql, parameters)
        finally:
            cursor.close()

    def _rendered(
        self, engine: Engine, build: Callable[[str], Select[Any]], argument: str
    ) -> tuple[str, Any]:
        # Cached: compiled a hundred times a second, it would take time from the program's threads.
        known = self._statements.get((build, argument))
        if known is None:
            compiled = build(argument).compile(dialect=engine.dialect)
            named = compiled.construct_params()
            order = compiled.positiontup if compiled.positional else None
            parameters = named if order is None else tuple(named[name] for name in order)
            known = self._statements[build, argument] = str(compiled), parameters
        return known


def _private_runner() -> asyncio.Runner:
    """A loop that runs only while something is sent, whatever policy is installed."""
    import asyncio  # noqa: PLC0415 - only programs with an async engine need it

    class PrivateLoop(asyncio.SelectorEventLoop):
        async def getaddrinfo(self, *args: Any, **options: Any) -> Any:
            # asyncio would use a thread, and none can be started once the interpreter has begun to
            # exit: a short program's last NOTIFY would be lost. This loop has nothing else to do
            # meanwhile.
            return socket.getaddrinfo(*args, **options)

    return asyncio.Runner(loop_factory=PrivateLoop)


def _run_in_greenlet(runner: asyncio.Runner, work: Callable[[], None], limit: float) -> None:
    import asyncio  # noqa: PLC0415 - only programs with an async engine need it

    from sqlalchemy.util import greenlet_spawn  # noqa: PLC0415 - needs the greenlet package

    async def limited() -> None:
        async with asyncio.timeout(limit):
            await greenlet_spawn(work)

    runner.run(limited())


def _limit_silence(connection: DBAPIConnection) -> None:
    """Make the system give up on unacknowledged bytes; its default is about 15 minutes."""
    with (
        suppress(AttributeError, OSError),  # not Linux, a Unix socket, a driver without a socket
        socket.socket(fileno=os.dup(connection.fileno())) as ours,
    ):
        ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(SILENCE_SECONDS * 1000))
