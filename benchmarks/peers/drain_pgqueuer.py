"""Adds events for pgqueuer, drains them in batches of 1000, and prints the seconds from the first
call of the handler to the last. Runs in an environment of its own: what it needs is not ours."""

# mypy: ignore-errors
# pyright: basic
import sys
import time

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

PORTION = 10_000


async def main(dsn: str, expected: int, payload: bytes) -> None:
    connection = await asyncpg.connect(dsn)
    driver = AsyncpgDriver(connection)
    queries = Queries(driver)
    if not await queries.schema_is_installed():
        await queries.install()
    await queries.clear_queue()
    for _ in range(expected // PORTION):
        await queries.enqueue(["order"] * PORTION, [payload] * PORTION, [0] * PORTION)
    await connection.execute("VACUUM ANALYZE pgqueuer")
    program = PgQueuer(driver)
    calls: list[float] = []

    @program.entrypoint("order")
    async def handler(_each: object) -> None:
        calls.append(time.perf_counter())

    await program.run(batch_size=1000, mode=QueueExecutionMode.drain)
    assert len(calls) == expected, len(calls)
    print(f"seconds {calls[-1] - calls[0]}", flush=True)


uvloop.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3].encode()))
