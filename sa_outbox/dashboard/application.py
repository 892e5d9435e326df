"""``Dashboard``: the ASGI application, put together."""

from __future__ import annotations

import secrets
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Unpack

import anyio

from .access import Keys
from .database import Database
from .faults import Faults
from .guard import Guard, Headers
from .history import EVERY, History
from .live import Streams
from .masking import Masks
from .routes import router
from .settings import DashboardOptions, DashboardSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy import URL, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine
    from starlette.types import Receive, Scope, Send

    from sa_outbox.outbox import Outbox

_ROOM = 65_536
"""Bytes of a form beside a payload in it."""


class Dashboard:
    """See and repair an outbox, in a browser. An ASGI application.

    ::

        app.mount("/outbox", outbox.dashboard(engine, token=os.environ["DASHBOARD_TOKEN"]))

    *database* is an engine, or the address of a database; connections are made when somebody
    looks. The options are the fields of :class:`DashboardSettings`; docs/dashboard.md explains
    each. A dashboard that nobody was let into refuses to be made.
    """

    def __init__(
        self,
        outbox: Outbox,
        database: str | URL | Engine | AsyncEngine,
        **options: Unpack[DashboardOptions],
    ) -> None:
        self.outbox = outbox
        self.settings = DashboardSettings(**options)
        self.masks = Masks(self.settings.mask)
        self.database = Database(database, outbox.tables)
        self.history = History(self.database)
        self.streams = Streams()
        # Of nobody in particular on the loopback: then forms are bound to this process.
        secret = self.settings.token or self.settings.secret or secrets.token_urlsafe()
        self.keys = Keys(secret)
        guard = Guard(
            router(self),
            settings=self.settings,
            keys=self.keys,
            # As a form sends it, up to three bytes for one, and six where it is escaped.
            most_bytes=6 * outbox.settings.limits.max_payload_bytes + _ROOM,
        )
        self._app = Headers(Faults(guard, self.settings))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        own = dict(scope)
        # The program around this one may have its own answers to our errors: JSON, a page of its.
        own.pop("starlette.exception_handlers", None)
        own.setdefault("app", self)
        await self._app(own, receive, send)

    async def watch(self) -> None:
        """Sample for the picture of the overview all the time, also when nobody looks. For a task
        of the program; without it the picture begins when somebody does."""
        while True:
            with suppress(Exception):  # a page that asks says what is wrong
                await self.history.look()
            await anyio.sleep(EVERY)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """For a server of its own: watch from its start, close at its end."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.watch)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await self.close()

    async def close(self) -> None:
        """End the streams, and dispose of the engine if it was made here."""
        self.streams.end()
        await self.database.close()
