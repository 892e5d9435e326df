"""A queue with effects in the database. An event whose ``then`` is ``cut`` ends the server as soon
as it is begun: the process ``LOSING_SERVER`` names in a file, once for each of its contents."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox
from tests.crash.seen import SEE, sight

_server = Path(os.environ["LOSING_SERVER"])
outbox = Outbox()


@outbox.listener("queue", on="*", order="none", concurrency=8)
async def see(event: Event[Any], session: AsyncSession) -> None:
    if event.payload.get("then") == "cut" and (pid := _server.read_text()):
        _server.write_text("")
        os.kill(int(pid), signal.SIGQUIT)
        await session.execute(text("SELECT pg_sleep(3600)"))  # ends with the server
    await session.execute(SEE, sight("queue", event))
