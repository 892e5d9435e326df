"""What the event loop reports: futures and tasks whose errors nobody has seen."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def reported() -> AsyncIterator[list[dict[str, Any]]]:
    """All of it until the end of the block, which lets go of what is lost."""
    loop = asyncio.get_running_loop()
    before, found = loop.get_exception_handler(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _, context: found.append(context))
    try:
        yield found
        for _ in range(50):  # what ends meanwhile
            await asyncio.sleep(0)
        gc.collect()  # what is lost is reported when it is collected
        await asyncio.sleep(0)
    finally:
        loop.set_exception_handler(before)
