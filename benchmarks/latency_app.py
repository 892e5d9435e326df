"""The program of the consumer process whose latency is measured: notes when its handler begins."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from sa_outbox import Event, Outbox

outbox = Outbox()
began: list[float] = []


order: Any = os.environ.get("BENCH_ORDER", "key")


@outbox.listener(f"latency_{order}", on="order.paid", order=order, start="now")
async def note(_event: Event[Any]) -> None:
    began.append(time.monotonic())
    if len(began) == int(os.environ["BENCH_EVENTS"]):
        Path(os.environ["BENCH_RESULT"]).write_text(json.dumps(began))
