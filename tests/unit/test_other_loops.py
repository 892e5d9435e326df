"""A consumer under another event loop than asyncio's says so, and touches nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sa_outbox import Event, Outbox
from sa_outbox.consumer import Consumer
from sa_outbox.errors import ConfigError


@pytest.mark.parametrize("start", [Consumer.run, Consumer.drain])
def test_it_says_that_it_needs_asyncio(start: Callable[[Consumer], Any]) -> None:
    outbox = Outbox(notify="off")

    @outbox.listener("billing", on="*")
    async def bill(event: Event[Any]) -> None: ...

    work = start(Consumer(outbox, "postgresql://shop@127.0.0.1:1/shop"))

    with pytest.raises(ConfigError, match=r"asyncio's event loop only.*From trio"):
        work.send(None)  # driven by nobody's loop: for asyncio, as under trio
