"""Wait for the database at startup: it may come up after its consumers."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

import anyio
import asyncpg

from sa_outbox.consumer.connection.connections import close
from sa_outbox.consumer.connection.engines import engines
from sa_outbox.consumer.connection.errors import is_database_error
from sa_outbox.errors import LifespanError
from sa_outbox.policy.backoff import Backoff
from sa_outbox.policy.error.masking import clean

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sqlalchemy import URL

    from sa_outbox.logs import Log

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 5.0
CLOSE_SECONDS = 1.0
_PASSES = ("08", "53", "57P")
"""SQLSTATE classes with which a reachable server says "not now"."""


class Unreachable(Exception):
    """The database is unreachable or refuses; the text says why, without a password."""


class Waiting:
    """Tries for *within* seconds after the first attempt, *attempt* seconds each; logs each failure
    to *log*."""

    def __init__(self, url: URL, log: Log, *, within: float, attempt: float) -> None:
        self._url = url
        self._log = log
        self._attempt = attempt
        self._deadline = monotonic() + within
        self._backoff = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        self._tries = 0

    async def start(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do *work* once the database accepts a connection; and again if it goes away before a
        consumer runs, which from then on waits by itself.

        Raises :class:`Unreachable`, at once if waiting can't help: a wrong password, no such
        database. If *work* itself fails in a way that waiting can't help, its error is passed on.
        """
        while True:
            await self._reach()
            try:
                await work()
            except Exception as error:
                if not is_of_the_database(error) or self._is_over(error):
                    raise
                await self._wait(error)
            else:
                return

    async def _reach(self) -> None:
        made = engines(self._url, None, ())
        try:
            while True:
                try:
                    with anyio.fail_after(self._attempt):
                        driver = await made.connect()
                except Exception as error:
                    if not is_of_the_database(error) and not isinstance(error, ValueError):
                        raise
                    if self._is_over(error):
                        raise Unreachable(explain(error, self._url)) from error
                    await self._wait(error)
                else:
                    await close(driver, CLOSE_SECONDS)
                    return
        finally:
            with anyio.CancelScope(shield=True):
                await made.dispose()

    def _is_over(self, error: Exception) -> bool:
        return _is_final(error) or monotonic() >= self._deadline

    async def _wait(self, error: Exception) -> None:
        self._tries += 1
        pause = min(self._backoff.next(), max(0.0, self._deadline - monotonic()))
        values = {"attempt": self._tries, "retry_in": round(pause, 3)}
        reason = explain(error, self._url)
        self._log.say("warning", "database can't be reached", reason=reason, **values)
        await anyio.sleep(pause)


def is_of_the_database(error: BaseException) -> bool:
    if isinstance(error, LifespanError):
        return False  # its cause may be of a database, but of the program's own
    return is_database_error(error) or is_database_error(_own(error))


def explain(error: BaseException, url: URL) -> str:
    """One line that explains *error*, without secrets."""
    own = _own(error)
    lines = clean(str(own)).strip().splitlines()
    reason = f"{type(own).__name__}: {lines[0]}" if lines else type(own).__name__
    return reason.replace(str(url.password), "***") if url.password else reason


def _own(error: BaseException) -> BaseException:
    """The driver's own error: SQLAlchemy wraps it in up to two of its classes."""
    inner: BaseException = getattr(error, "orig", None) or error
    cause = inner.__cause__
    return cause if isinstance(cause, (asyncpg.PostgresError, asyncpg.InterfaceError)) else inner


def _is_final(error: BaseException) -> bool:
    """Whether a later attempt would fail the same way: the server or the driver said no."""
    own = _own(error)
    if isinstance(own, ValueError):  # about the address; a certificate
        return True
    sqlstate = getattr(own, "sqlstate", None)
    return isinstance(sqlstate, str) and not sqlstate.startswith(_PASSES)
