"""One listener of each kind; ``DEADLY_LISTENER`` says which of them a process has.

What an event's ``then`` says is done by each handler: ``die`` ends the process, ``fail_then_die``
and ``reject_then_die`` raise the first time, whichever process has it, and end the process later.
``cut_power`` ends the server too: the process ``DEADLY_SERVER``.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox, Reject, RetryPolicy

SOON = RetryPolicy(attempts=100, base=timedelta(milliseconds=50), maximum=timedelta(seconds=1))
_raised = Path(os.environ["DEADLY_NOTES"]) / "raised"

outbox = Outbox()


async def act(event: Event[Any]) -> None:
    then = event.payload.get("then")
    if then is None:
        await asyncio.sleep(0.001)
        return
    if then == "cut_power":
        cut_power()
    if then != "die" and not _raised.exists():
        _raised.touch()
        raise Reject("told to") if then == "reject_then_die" else ValueError("told to")
    os._exit(70)


def cut_power() -> NoReturn:
    """The machine that both run on is gone: nothing is written anymore, on either side."""
    os.kill(int(os.environ["DEADLY_SERVER"]), signal.SIGQUIT)
    os._exit(70)


async def plain(event: Event[Any]) -> None:
    await act(event)


async def with_session(event: Event[Any], session: AsyncSession) -> None:
    await session.execute(text("SELECT 1"))
    await act(event)


async def batch(events: Sequence[Event[Any]]) -> None:
    for event in events:
        await act(event)


match os.environ["DEADLY_LISTENER"]:
    case "by_key":
        outbox.listener("by_key", on="*", concurrency=4, retry=SOON)(plain)
    case "with_session":
        outbox.listener("with_session", on="*", concurrency=4, retry=SOON)(with_session)
    case "in_total":
        outbox.listener("in_total", on="*", order="total", retry=SOON)(plain)
    case "in_batches":
        outbox.listener("in_batches", on="*", batch_size=20, retry=SOON)(batch)
    case "in_partitions":
        outbox.listener("in_partitions", on="*", partitions=2, concurrency=4, retry=SOON)(plain)
    case "queue":
        outbox.listener("queue", on="*", order="none", concurrency=4, retry=SOON)(plain)
    case "queue_in_batches":
        outbox.listener("queue_in_batches", on="*", order="none", batch_size=20, retry=SOON)(batch)
