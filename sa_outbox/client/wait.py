"""Wait until a listener has handled an event.

By polling: a listener settles many events at once, and a notification for each would cost every
event for the few that somebody waits for. Each time it is the statement of ``outbox.status``, on a
connection that is given back at once; the pauses grow from 10 ms to half a second.

A query without an answer ends with the time, too: a full pool, a lock or a silent network would
hold it up. With an async engine it is cancelled. A thread that waits can't be: with a sync engine
the server ends the statement, and for the rest there are the limits of the pool and the driver.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from ..database.faults import code_of
from ..errors import ConfigError, EventNotFound, NotFinished, WrongArgument
from ..policy.backoff import Backoff
from ..policy.checks import ONE_DAY, check_span, known_instead
from ..sql.server.patience import patience
from .status import is_endpoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta
    from uuid import UUID

    from ..declare.declaration import Listeners
    from .status import EventStatus, ListenerStatus, Statuses

FIRST_PAUSE_SECONDS: Final = 0.01
MAX_PAUSE_SECONDS: Final = 0.5
LEAST_QUERY_SECONDS: Final = 1.0
"""A query may take as long, whatever time is left: a short time is for the listener, and not for
the connection that has to be opened."""
QUERY_CANCELED: Final = "57014"
ENDED: Final = ("succeeded", "dead", "cancelled")
AnyEngine: TypeAlias = "Engine | AsyncEngine"


class Waiting:
    """One call of ``outbox.wait``. Raises :class:`ConfigError` and :class:`WrongArgument`."""

    def __init__(
        self,
        statuses: Statuses,
        listeners: Listeners,
        event_id: UUID | str,
        listener: str,
        timeout: timedelta,
    ) -> None:
        check_span("timeout", timeout, most=ONE_DAY)
        declared = {each.name: each for each in listeners}
        if listener not in declared and not is_endpoint(listener):
            known = known_instead(listener, declared)
            raise ConfigError(f"there is no listener {listener!r}{known}")
        self._statuses = statuses
        self._listener = listener
        self._declared = declared.get(listener)
        self._wanted = statuses.wanted(event_id, None, None, None)
        self._timeout = timeout

    def on(self, engine: AnyEngine) -> Any:
        """The status at the end; with an async engine, an awaitable of it."""
        if isinstance(engine, AsyncEngine):
            return self._asynchronously(engine)
        if isinstance(engine, Engine):
            return self._synchronously(engine)
        raise WrongArgument(
            f"wait needs an engine, not {type(engine).__name__}: in a transaction it would hold "
            "back what it waits for",
            field="engine",
        )

    async def _asynchronously(self, engine: AsyncEngine) -> ListenerStatus:
        end, status = self._end(), None
        pauses = self._pauses(end)
        while True:
            bound = asyncio.timeout(self._longest(end))
            try:
                async with bound, engine.connect() as connection:
                    found = await connection.run_sync(self._statuses.ask, self._wanted)
            except TimeoutError as error:
                if not bound.expired():
                    raise
                raise self._unanswered(status) from error
            status = self._current(found)
            if status.state in ENDED:
                return status
            await asyncio.sleep(self._next(pauses, status))

    def _synchronously(self, engine: Engine) -> ListenerStatus:
        end, status = self._end(), None
        pauses = self._pauses(end)
        while True:
            try:
                with engine.connect() as connection:
                    connection.execute(patience(), {"seconds": self._longest(end)})
                    found = self._statuses.ask(connection, self._wanted)
            except DBAPIError as error:
                if code_of(error) != QUERY_CANCELED or time.monotonic() < end:
                    raise
                raise self._unanswered(status) from error
            status = self._current(found)
            if status.state in ENDED:
                return status
            time.sleep(self._next(pauses, status))

    def _end(self) -> float:
        return time.monotonic() + self._timeout.total_seconds()

    def _longest(self, end: float) -> float:
        """Seconds that a query that begins now may take."""
        return max(end - time.monotonic(), LEAST_QUERY_SECONDS)

    def _current(self, found: EventStatus) -> ListenerStatus:
        status = found.listeners.get(self._listener)
        if status is None:
            raise ConfigError(self._unrelated(found.event_type))
        if status.state == "unknown" and (found.position is None or self._declared is None):
            raise EventNotFound(self._untold(found))
        return status

    def _unrelated(self, event_type: str | None) -> str:
        name = self._listener
        if self._declared is None:
            return (
                f"{name!r} does not get this event: its event types, tenant or where= leave it "
                "out, or no consumer has served an endpoint of this name yet"
            )
        if event_type is not None and self._declared.wants(event_type):
            return f"listener {name!r} leaves this event out by its where="
        return f"listener {name!r} does not listen to {event_type!r}"

    def _untold(self, found: EventStatus) -> str:
        if found.position is None:
            return (
                f"event {found.event_id} is no longer in the log: whether listener "
                f"{self._listener!r} has handled it is not known"
            )
        return (
            f"whether {self._listener!r} gets event {found.event_id} is not known: its where= looks"
            " into the payload, which this role may not read"
        )

    def _pauses(self, end: float) -> Iterator[float]:
        """Until the time is up: the last one ends there."""
        backoff = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        while (left := end - time.monotonic()) > 0:
            yield min(backoff.next(), left)

    def _next(self, pauses: Iterator[float], status: ListenerStatus) -> float:
        for pause in pauses:
            return pause
        hint = "" if self._declared is not None else " Is the endpoint enabled?"
        raise self._not_finished(
            status.state,
            f"it is {status.state}"
            + (f". Does a consumer run?{hint}" if status.state == "pending" else ""),
        )

    def _unanswered(self, last: ListenerStatus | None) -> NotFinished:
        known = "whether it has is not known" if last is None else f"it was {last.state} before"
        return self._not_finished(
            "unknown" if last is None else last.state,
            f"the database, or the pool of connections, has not answered the last query; {known}",
        )

    def _not_finished(self, state: str, why: str) -> NotFinished:
        error = NotFinished(
            f"listener {self._listener!r} has not finished event {self._wanted['event_id']} "
            f"within {self._timeout}: {why}"
        )
        error.state = state
        return error
