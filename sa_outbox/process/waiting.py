"""Waiting for the database at the start: it may come up after its consumers."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

import anyio
import asyncpg

from sa_outbox.consumer.connections import close, is_database_error
from sa_outbox.consumer.engines import engines
from sa_outbox.failure import clean

if TYPE_CHECKING:
    from sqlalchemy import URL

    from sa_outbox.logs import Log

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0
CLOSING = 1.0
_PASSES = ("08", "53", "57P")
"""Classes of SQLSTATE with which a server that can be reached says: not now."""


class Unreachable(Exception):
    """The database can't be reached, or refuses; the text says why, without a password."""


async def reach(url: URL, log: Log, *, within: float, attempt: float) -> None:
    """Return when the database at *url* takes a connection; a line in *log* for each failure.

    Tries for *within* seconds, *attempt* seconds at a time. Raises :class:`Unreachable`, at once
    when waiting can't help: a wrong password, no such database.
    """
    made = engines(url, None, ())
    deadline = monotonic() + within
    pause, tries = FIRST_PAUSE, 0
    try:
        while True:
            tries += 1
            try:
                with anyio.fail_after(attempt):
                    driver = await made.connect()
            except Exception as error:
                if not is_of_the_database(error) and not isinstance(error, ValueError):
                    raise
                left = deadline - monotonic()
                reason = explain(error, url)
                if _is_final(error) or left <= 0:
                    raise Unreachable(reason) from error
                pause = min(pause, left)
                values = {"attempt": tries, "reason": reason, "retry_in": round(pause, 3)}
                log.say("warning", "database can't be reached", **values)
                await anyio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                await close(driver, CLOSING)
                return
    finally:
        with anyio.CancelScope(shield=True):
            await made.dispose()


def is_of_the_database(error: BaseException) -> bool:
    return is_database_error(error) or is_database_error(_own(error))


def explain(error: BaseException, url: URL) -> str:
    """One line that says what *error* is, with nothing secret in it."""
    own = _own(error)
    lines = clean(str(own)).strip().splitlines()
    reason = f"{type(own).__name__}: {lines[0]}" if lines else type(own).__name__
    return reason.replace(str(url.password), "***") if url.password else reason


def _own(error: BaseException) -> BaseException:
    """The driver's own error: SQLAlchemy puts up to two of its classes around it."""
    inner: BaseException = getattr(error, "orig", None) or error
    cause = inner.__cause__
    return cause if isinstance(cause, (asyncpg.PostgresError, asyncpg.InterfaceError)) else inner


def _is_final(error: BaseException) -> bool:
    """Whether the same attempt later would end the same: the server or the driver said no."""
    own = _own(error)
    if isinstance(own, ValueError):  # about the address; a certificate
        return True
    sqlstate = getattr(own, "sqlstate", None)
    return isinstance(sqlstate, str) and not sqlstate.startswith(_PASSES)
