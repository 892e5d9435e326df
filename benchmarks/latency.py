"""From the return of a commit to the start of the handler, in two processes, as in production.

Both read one clock, which counts for the whole system. The producer commits one event at a time
with pauses, or many of them at a given rate.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Sequence


async def commit_to_handler(url: str, order: str, events: int, *, rate: float = 0.0) -> list[float]:
    """Seconds of each event, by number. *rate*: commits per second; 0 for one at a time."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "began.json"
        environment = os.environ | {
            "SA_OUTBOX_DATABASE_URL": url,
            "BENCH_EVENTS": str(events),
            "BENCH_RESULT": str(result),
            "BENCH_ORDER": order,
            "BENCH_RUN": uuid4().hex,
        }
        consumer = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sa_outbox.consume", "benchmarks.latency_app:outbox"),
            env=environment,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            await says(consumer, b"listening")
            said = await output_of("benchmarks.producer", url, str(events), str(rate))
            while not result.exists():
                await asyncio.sleep(0.05)
        finally:
            consumer.terminate()
            await consumer.communicate()
        began = json.loads(result.read_text())
    committed = json.loads(said)
    return [began[number] - done for number, done in committed.items()]


async def says(process: asyncio.subprocess.Process, word: bytes) -> None:
    assert process.stdout is not None
    while word not in (line := await process.stdout.readline()):
        if not line:
            raise RuntimeError(f"ended without saying {word!r}")


async def output_of(module: str, *arguments: str) -> bytes:
    command: Sequence[str] = (sys.executable, "-m", module, *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{module} ended with {process.returncode}")
    return said
