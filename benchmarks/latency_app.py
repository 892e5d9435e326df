"""The program of the consumer process whose latency is measured: notes when its handler begins."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from sa_outbox import Event, Outbox

outbox = Outbox()
began: dict[int, float] = {}
order: Any = os.environ.get("BENCH_ORDER", "key")
# A new listener for each run: an older one would first get what was written since it last ran.
run = os.environ.get("BENCH_RUN", "0")


@outbox.listener(f"latency_{order}_{run}", on="order.paid", order=order, start="now")
async def note(event: Event[Any]) -> None:
    now = time.monotonic()
    began[event.payload["number"]] = now
    if len(began) == int(os.environ["BENCH_EVENTS"]):
        result = Path(os.environ["BENCH_RESULT"])
        result.with_suffix(".part").write_text(json.dumps(began))
        result.with_suffix(".part").rename(result)  # whoever waits for it finds all of it
