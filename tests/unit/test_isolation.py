"""A coroutine in a context of its own, in the task of the caller."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import anyio
import anyio.lowlevel
import pytest

from sa_outbox.consumer.handler.call_context import isolated

pytestmark = pytest.mark.anyio
NAME: ContextVar[str] = ContextVar("name", default="outside")


async def set_it(*, waits: bool) -> str:
    before = NAME.get()
    NAME.set("inside")
    if waits:
        await anyio.lowlevel.checkpoint()
    assert NAME.get() == "inside"
    return before


@pytest.mark.parametrize("waits", [True, False])
async def test_what_is_set_inside_is_not_set_outside(waits: bool) -> None:
    NAME.set("before")

    assert await isolated(set_it(waits=waits)) == "before"

    assert NAME.get() == "before"


async def test_it_is_the_same_task() -> None:
    async def task() -> object:
        await anyio.lowlevel.checkpoint()
        return asyncio.current_task()

    assert await isolated(task()) is asyncio.current_task()


async def test_a_cancellation_reaches_it_in_its_own_context() -> None:
    seen = []

    async def wait() -> None:
        NAME.set("inside")
        try:
            await anyio.sleep_forever()
        finally:
            seen.append(NAME.get())

    with anyio.move_on_after(0.01) as scope:
        await isolated(wait())

    assert scope.cancelled_caught
    assert seen == ["inside"]


@pytest.mark.parametrize("waits", [True, False])
async def test_what_it_raises_is_raised(waits: bool) -> None:
    async def fail() -> None:
        if waits:
            await anyio.lowlevel.checkpoint()
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        await isolated(fail())
