"""Does a LISTEN over this connection path receive a NOTIFY?

Behind a pooler in transaction mode, LISTEN succeeds and receives nothing: the server connection it
was sent on is lent to others. Nothing reports that; it has to be tried.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import anyio
import asyncpg

from sa_outbox.sql.server.notify import ping_text

from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PATIENCE_SECONDS = 5.0
"""Seconds. A notification takes milliseconds."""
_FIX = (
    "Give the consumers an address that leads to the server itself: --listen-url or "
    "SA_OUTBOX_LISTEN_URL. Without it they poll."
)


async def find(
    listen: Callable[[], Awaitable[Any]],
    notify: Callable[[], Awaitable[Any]],
    channel: str,
    *,
    patience: float = PATIENCE_SECONDS,
) -> list[Finding]:
    """*listen* and *notify* open asyncpg connections, over the paths that consumers listen on and
    producers notify on."""
    try:
        heard = await _heard(listen, notify, channel, patience)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        return [
            Finding(
                code="listen-refused",
                what="LISTEN or NOTIFY is refused on this address: new events are seen at the "
                "next poll.",
                fix=_FIX,
                evidence={"channel": channel, "error": type(error).__name__},
            )
        ]
    if heard:
        return []
    return [
        Finding(
            code="listen-unheard",
            what="LISTEN succeeds on this address and receives nothing, as behind a pooler in "
            "transaction mode: new events are seen at the next poll.",
            fix=_FIX,
            evidence={"channel": channel, "waited_seconds": patience},
        )
    ]


async def _heard(
    listen: Callable[[], Awaitable[Any]],
    notify: Callable[[], Awaitable[Any]],
    channel: str,
    patience: float,
) -> bool:
    message, heard = f"ping {secrets.token_hex(8)}", anyio.Event()

    def hear(_driver: object, _pid: int, _channel: str, text: object) -> None:
        if text == message:
            heard.set()

    listening = await listen()
    try:
        await listening.add_listener(channel, hear)
        notifying = await notify()
        try:
            # As text: behind a pooler a prepared statement may be on another connection.
            await notifying.execute(ping_text(channel, message))
            with anyio.move_on_after(patience):
                await heard.wait()
        finally:
            notifying.terminate()
    finally:
        listening.terminate()
    return heard.is_set()
