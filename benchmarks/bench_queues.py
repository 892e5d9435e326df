"""How quickly does a queue drain, against other queues on PostgreSQL?

``python -m benchmarks.bench_queues --rounds 5``. Not among those of ``make bench``: it installs
graphile-worker (npm) and pgqueuer (pip) into a temporary folder first.

The same server, the same payload, so many events written before anybody looks, a handler that
does nothing. Each contestant is one process: graphile-worker with the configuration that it
documents as its fastest, pgqueuer in batches of 1000, ours by default. Contestants take turns,
round by round. Of the others the time ends with the last call of the handler, of ours when all of
it is settled.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click
import psycopg
import uvloop
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sa_outbox import Outbox
from sa_outbox.embedded import EmbeddedPostgres
from sa_outbox.schema import migrate

from .__main__ import DURABLE
from .bench_consuming import Contestant, drained, fill, handler, take_turns
from .shop import PAYLOAD

if TYPE_CHECKING:
    from collections.abc import Callable

PEERS = Path(__file__).parent / "peers"
ADD_JOBS = """
    SELECT count(*) FROM graphile_worker.add_jobs((
        SELECT array_agg(('order.placed', %s::json, NULL, NULL, NULL, NULL, NULL, NULL)
                         ::graphile_worker.job_spec)
        FROM generate_series(1, %s)))
"""


def seconds_of(command: list[str], folder: Path) -> float:
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    (line,) = (each for each in done.stdout.splitlines() if each.startswith("seconds "))
    return float(line.split()[1])


def install(folder: Path) -> Path:
    """Return the Python that has pgqueuer; node finds graphile-worker in *folder* by itself."""
    npm = ["npm", "install", "--no-package-lock", "--silent", "graphile-worker"]
    subprocess.run(npm, cwd=folder, check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "pgqueuer[asyncpg]", "uvloop"]
    subprocess.run(pip, check=True, capture_output=True)
    for name in ("graphile.js", "drain_pgqueuer.py"):
        (folder / name).write_text((PEERS / name).read_text())
    return python


def graphile(dsn: str, folder: Path, events: int) -> float:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(ADD_JOBS, (json.dumps(PAYLOAD), events))
        connection.execute("VACUUM ANALYZE graphile_worker._private_jobs")
    return seconds_of(["node", "graphile.js", dsn, str(events)], folder)


async def in_a_thread(work: Callable[..., float], *args: object) -> float:
    return await asyncio.to_thread(work, *args)


async def run(
    server: EmbeddedPostgres, folder: Path, python: Path, events: int, rounds: int
) -> None:
    outbox = Outbox()
    outbox.listener("queue", on="order.placed", order="none")(handler)
    outbox.listener("key", on="order.placed")(handler)
    engine = create_async_engine(server.url("asyncpg"))
    async with engine.begin() as connection:
        await connection.run_sync(migrate, outbox.settings.names)
    dsn = server.url()
    migrate_graphile = ["npx", "graphile-worker", "--schema-only", "-c", dsn]
    subprocess.run(migrate_graphile, cwd=folder, check=True, capture_output=True)
    await fill(engine, events)
    program = [str(python), "drain_pgqueuer.py", dsn, str(events), json.dumps(PAYLOAD)]
    contestants: dict[str, Contestant] = {
        'sa_outbox, order="none"': lambda: ours(outbox, engine, "queue"),
        'sa_outbox, order="key"': lambda: ours(outbox, engine, "key"),
        "graphile-worker": lambda: in_a_thread(graphile, dsn, folder, events),
        "pgqueuer": lambda: in_a_thread(seconds_of, program, folder),
    }
    times = await take_turns(contestants, rounds)
    await engine.dispose()
    report(times, events)


async def ours(outbox: Outbox, engine: AsyncEngine, listener: str) -> float:
    async with engine.begin() as connection:
        await connection.execute(text("DELETE FROM outbox_ranges"))
    return await drained(outbox, engine, listener)


def report(times: dict[str, list[float]], events: int) -> None:
    queue = next(iter(times.values()))
    print(f"\na backlog of {events:,} events, a handler that does nothing; each round")
    for name, taken in times.items():
        rates = ", ".join(f"{events / each:,.0f}" for each in taken)
        ratios = sorted(its / mine for mine, its in zip(queue, taken, strict=True))
        print(f"  {name:<26} {rates} events/s")
        print(f"  {'':<26} the queue is {statistics.median(ratios):.2f} times as fast, "
              f"{ratios[0]:.2f} to {ratios[-1]:.2f}")  # fmt: skip


@click.command()
@click.option("--events", default=50_000, show_default=True, help="A multiple of 10,000.")
@click.option("--rounds", default=5, show_default=True)
def main(*, events: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name, EmbeddedPostgres(settings=DURABLE) as server:
        folder = Path(name)
        python = install(folder)
        print(f"PostgreSQL {server.version}, durable", flush=True)
        uvloop.run(run(server, folder, python, events, rounds))


if __name__ == "__main__":
    main()
