"""The assumptions that reading relies on: verified at the start, and again while running."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
from anyio import TASK_STATUS_IGNORED

from sa_outbox import schema
from sa_outbox.schema.identity import settle_home
from sa_outbox.sql.server.transactions import bound

from ..connection.errors import is_database_error
from ..connection.shield import to_its_end
from ..shared.sync import AutoResetEvent
from .copies import Copies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyio.abc import TaskStatus
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncEngine

    from sa_outbox.declare.listener import Listener
    from sa_outbox.outbox import Outbox
    from sa_outbox.schema.identity import Home

    from ..shared.context import ConsumerContext

WITHHELD_POLL_SECONDS = 30.0
"""Seconds between two checks of a copy: its adoption may be notified on another channel, or not at
all."""


class Verification:
    def __init__(
        self,
        context: ConsumerContext,
        engine: AsyncEngine,
        outbox: Outbox,
        listeners: Sequence[Listener],
    ) -> None:
        names = outbox.settings.names
        self.bell: AutoResetEvent = AutoResetEvent()
        """Rung when the server may be another one, or was adopted."""
        self.copies: Copies = Copies(context, listeners, names)
        self._context = context
        self._engine = engine
        self._names = names
        self._forwardings = [each.forwarding for each in listeners if each.forwarding is not None]
        self._needs = {
            "queues": any(each.order_mode.is_queue for each in listeners),
            "crons": bool(len(outbox.crons)),
            "audit": outbox.settings.audit != "off",
            "endpoints": outbox.endpoints is not None,
        }

    async def verify(self) -> None:
        """Raise ``SchemaError`` unless everything holds that reading relies on; and find out
        whether this is a copy."""
        home = await to_its_end(self._find_home())
        for forwarding in self._forwardings:
            forwarding.begin_epoch(home.epoch)
        self.copies.found(home)

    async def _find_home(self) -> Home:
        async with self._engine.begin() as connection:
            return await connection.run_sync(self._verify)

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        task_status.started()
        interval = self._context.settings.verify_interval.total_seconds()
        limit = self._context.settings.probe_timeout.total_seconds()
        while True:
            withheld = self._context.withheld
            await self.bell.wait(min(interval, WITHHELD_POLL_SECONDS) if withheld else interval)
            try:
                # Shielded: if it were cancelled midway, the engine's pool would log an error.
                with anyio.move_on_after(limit, shield=True):
                    await self.verify()
            except Exception as error:
                if not is_database_error(error):
                    raise

    def _verify(self, connection: Connection) -> Home:
        # It locks tables, if only against DDL: bounded, in case this process is suspended.
        duration = self._context.settings.lease_duration.total_seconds()
        connection.execute(bound(), {"duration": duration})
        schema.verify_consuming(connection, self._names, **self._needs)
        # With their schema from now on, whatever the search_path is: a handler may have changed
        # it on the connection that is used for the next check.
        self._names = self._context.tables.names
        return settle_home(connection, self._names)
