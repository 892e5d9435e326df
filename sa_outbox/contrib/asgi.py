"""A consumer beside an ASGI application, and its requests as the context of events."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio

from ..consumer.shared.task_errors import one_error
from ..errors import OutboxError
from ..logs import program_log
from ..policy.backoff import Backoff
from .request_ids import context_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractContextManager

    from ..consumer import Consumer

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 60.0

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


@asynccontextmanager
async def consuming(consumer: Consumer, *, exit_on_failure: bool = False) -> AsyncIterator[None]:
    """Run *consumer* inside the ``async with``: for the lifespan of an application.

    ::

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            async with consuming(Consumer(outbox, engine)):
                yield
            await engine.dispose()

    At the end it is stopped gracefully. A consumer that fails does not touch the application: that
    is logged, and it is started again after a pause, of a minute at most. With *exit_on_failure*
    the process gets SIGTERM instead, and its server shuts down.
    """
    beside = _Beside(consumer, exit_on_failure=exit_on_failure)
    with one_error():  # of the application, not as a group
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(beside.keep_running)
            yield
            beside.stop()


class _Beside:
    def __init__(self, consumer: Consumer, *, exit_on_failure: bool) -> None:
        self._consumer = consumer
        self._exit_on_failure = exit_on_failure
        self._stopped = anyio.Event()
        self._runs = False

    def stop(self) -> None:
        self._stopped.set()
        if self._runs:  # else its next run, in another lifespan, would end at once
            self._consumer.stop("the application shuts down")

    async def keep_running(self) -> None:
        backoff = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        while not self._stopped.is_set():
            began = monotonic()
            error = await self._run()
            if self._stopped.is_set() and error is None:
                return
            if monotonic() - began > MAX_PAUSE_SECONDS:
                backoff.reset()
            pause = backoff.next()
            self._report(error, None if self._ends else pause)
            if self._ends:
                if not self._stopped.is_set():
                    signal.raise_signal(signal.SIGTERM)
                return
            with anyio.move_on_after(pause):
                await self._stopped.wait()

    @property
    def _ends(self) -> bool:
        return self._exit_on_failure or self._stopped.is_set()

    async def _run(self) -> Exception | None:
        self._runs = True
        try:
            await self._consumer.run()
        except Exception as error:  # noqa: BLE001 - reported; the application goes on
            return error
        finally:
            self._runs = False
        return None

    def _report(self, error: Exception | None, pause: float | None) -> None:
        settings = self._consumer.settings
        log = program_log(settings.log_level, settings.log_starts)
        if error is None:  # a handler has ended it
            log.say("error", "consumer ended", reason=self._consumer.reason, retry_in=pause)
        else:
            # Our own texts quote no data.
            reason = str(error) if isinstance(error, OutboxError) else None
            log.say_error("consumer failed", error, reason=reason, retry_in=pause)


class EventContextMiddleware:
    """Events that are added during a request get its id, and its correlation id, as headers.

    ::

        app.add_middleware(EventContextMiddleware)

    From the headers ``X-Request-ID`` and ``X-Correlation-ID``, or those that are named. A value
    that can't be stored is left out, as is a header that is missing: no id is made up, since a
    program may have bound one for its log. Whoever sends the request chooses these values, so a
    tenant or an actor is never taken from a header: see docs/fastapi.md.
    """

    def __init__(
        self,
        app: App,
        *,
        request_id: str = "X-Request-ID",
        correlation_id: str = "X-Correlation-ID",
    ) -> None:
        self._app = app
        self._names = {
            request_id.lower().encode("latin-1"): "request_id",
            correlation_id.lower().encode("latin-1"): "correlation_id",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        with self._context(scope):
            await self._app(scope, receive, send)

    def _context(self, scope: Scope) -> AbstractContextManager[None]:
        sent: dict[str, str] = {}
        for name, value in scope["headers"]:
            field = self._names.get(name.lower())
            if field is not None:
                sent.setdefault(field, value.decode("latin-1"))
        return context_of(sent)
