"""Wait until a listener has handled an event.

By polling: a listener settles many events at once, and a notification for each would cost every
event for the few that somebody waits for. Each look is the statement of ``outbox.status``, on a
connection that is given back at once; the pauses grow from 10 ms to half a second.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sqlalchemy.engine import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from ..errors import ConfigError, EventNotFound, NotFinished, WrongArgument
from ..policy.checks import ONE_DAY, check_span, known_instead
from .status import is_endpoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta
    from uuid import UUID

    from ..declare.declaration import Listeners
    from .status import EventStatus, ListenerStatus, Statuses

FIRST_PAUSE_SECONDS: Final = 0.01
MAX_PAUSE_SECONDS: Final = 0.5
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
        pauses = self._pauses()
        while True:
            async with engine.connect() as connection:
                found = await connection.run_sync(self._statuses.ask, self._wanted)
            status = self._current(found)
            if status.state in ENDED:
                return status
            await asyncio.sleep(self._next(pauses, status))

    def _synchronously(self, engine: Engine) -> ListenerStatus:
        pauses = self._pauses()
        while True:
            with engine.connect() as connection:
                found = self._statuses.ask(connection, self._wanted)
            status = self._current(found)
            if status.state in ENDED:
                return status
            time.sleep(self._next(pauses, status))

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

    def _pauses(self) -> Iterator[float]:
        """Until the time is up: the last one ends there."""
        end, pause = time.monotonic() + self._timeout.total_seconds(), FIRST_PAUSE_SECONDS
        while (left := end - time.monotonic()) > 0:
            yield min(pause, left)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    def _next(self, pauses: Iterator[float], status: ListenerStatus) -> float:
        for pause in pauses:
            return pause
        hint = "" if self._declared is not None else " Is the endpoint enabled?"
        error = NotFinished(
            f"listener {self._listener!r} has not finished event {self._wanted['event_id']} "
            f"within {self._timeout}: it is {status.state}"
            + (f". Does a consumer run?{hint}" if status.state == "pending" else "")
        )
        error.state = status.state
        raise error
