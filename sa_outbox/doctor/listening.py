"""Does a LISTEN on this way to the database hear a NOTIFY?

Behind a pooler in transaction mode LISTEN succeeds and hears nothing: the server connection it was
sent on is lent to others. Nothing says so; it has to be tried.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import anyio
import asyncpg

from sa_outbox.sql.notify import ping_text

from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PATIENCE = 5.0
"""Seconds. A notification takes milliseconds."""
_MEND = (
    "Give the consumers an address that leads to the server itself: --listen-url or "
    "SA_OUTBOX_LISTEN_URL. Without it they poll."
)


async def find(
    listen: Callable[[], Awaitable[Any]],
    notify: Callable[[], Awaitable[Any]],
    channel: str,
    *,
    patience: float = PATIENCE,
) -> list[Finding]:
    """*listen* and *notify* make asyncpg connections, on the ways that consumers listen and
    producers notify on."""
    try:
        heard = await _heard(listen, notify, channel, patience)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        return [
            Finding(
                code="listen-refused",
                what="LISTEN or NOTIFY is refused on this address: new events are seen with the "
                "next poll.",
                mend=_MEND,
                evidence={"channel": channel, "error": type(error).__name__},
            )
        ]
    if heard:
        return []
    return [
        Finding(
            code="listen-unheard",
            what="LISTEN succeeds on this address and hears nothing, as behind a pooler in "
            "transaction mode: new events are seen with the next poll.",
            mend=_MEND,
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
