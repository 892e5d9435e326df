"""``Dashboard``: the ASGI application."""

from __future__ import annotations

import secrets
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Unpack

import anyio

from .access import Keys
from .database import Database
from .faults import Faults
from .guard import Guard, Headers
from .history import SAMPLE_SECONDS, History
from .live import Streams
from .mask import Masks
from .settings import DashboardOptions, DashboardSettings
from .urls import router

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy import URL, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine
    from starlette.types import Receive, Scope, Send

    from sa_outbox.outbox import Outbox

_ROOM = 65_536
"""Bytes allowed for a form besides the payload in it."""


class Dashboard:
    """Inspect and repair an outbox in a browser. An ASGI application.

    ::

        app.mount("/outbox", Dashboard(outbox, engine, token=os.environ["DASHBOARD_TOKEN"]))

    *database* is an engine or a database URL; it connects on the first request. The options are
    the fields of :class:`DashboardSettings`; docs/dashboard.md explains each. Raises if the
    settings let nobody in.
    """

    def __init__(
        self,
        outbox: Outbox,
        database: str | URL | Engine | AsyncEngine,
        **options: Unpack[DashboardOptions],
    ) -> None:
        self.outbox = outbox
        self.settings: DashboardSettings = DashboardSettings(**options)
        self.masks: Masks = Masks(self.settings.mask)
        self.database: Database = Database(database, outbox.tables)
        self.history: History = History(self.database)
        self.streams: Streams = Streams()
        # On the loopback there are no identities: forms are bound to this process.
        secret = self.settings.token or self.settings.secret or secrets.token_urlsafe()
        self.keys: Keys = Keys(secret)
        self.guard: Guard = Guard(
            router(self, self.running),
            settings=self.settings,
            keys=self.keys,
            # As a form encodes it: up to three bytes for one, and six where it is escaped.
            most_bytes=6 * outbox.settings.limits.max_payload_bytes + _ROOM,
        )
        self._app = Headers(Faults(self.guard, self.settings))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        own = dict(scope)
        # The surrounding program may have its own error handlers: JSON, or its own page.
        own.pop("starlette.exception_handlers", None)
        own.setdefault("app", self)
        await self._app(own, receive, send)

    async def watch(self) -> None:
        """Take samples for the overview's chart all the time, even when nobody is watching. Run it
        as a task of the program; without it the chart starts with the first visitor."""
        while True:
            with suppress(Exception):  # a page reports what is wrong when it is loaded
                await self.history.look()
            await anyio.sleep(SAMPLE_SECONDS)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """For a standalone server: watch from its start, close at its end."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.watch)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await self.close()

    async def close(self) -> None:
        """End the streams, and dispose of the engine if it was created here."""
        self.streams.end()
        await self.database.close()
