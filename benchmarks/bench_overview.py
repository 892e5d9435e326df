"""How long does the overview take, on a long log with many listeners?

Fills a scratch database of an embedded server (or of --database-url: give an EMPTY database), then
asks ``overview()`` again and again on one connection, and runs the whole command
``sa-outbox status --json`` as a process; beside it the processes that it can't be faster than.

    python -m benchmarks.bench_overview --events 10000000 --listeners 100
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from contextlib import contextmanager
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from sqlalchemy import create_engine, text

from sa_outbox.database.tables import tables
from sa_outbox.embedded import EmbeddedPostgres
from sa_outbox.operations.overview import overview
from sa_outbox.schema import migrate
from sa_outbox.settings import Names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

AT_ONCE = 500_000
TIMES = 20


def fill(connection: Connection, events: int, listeners: int) -> None:
    """Cursors everywhere: a third has caught up, the others are spread over the log."""
    for first in range(1, events + 1, AT_ONCE):
        connection.execute(
            text(
                "INSERT INTO outbox (event_id, event_type, key, tenant, payload)"
                " SELECT gen_random_uuid(), 'order.' || n % 20, 'k' || n % 5000, 't' || n % 50,"
                " jsonb_build_object('n', n) FROM generate_series(:first, :last) AS n"
            ),
            {"first": first, "last": min(events, first + AT_ONCE - 1)},
        )
        connection.commit()
    connection.execute(
        text(
            "INSERT INTO outbox_listeners (name, last_processed_id)"
            " SELECT 'listener' || n, CASE WHEN n % 3 = 0 THEN :events"
            " ELSE CAST(:events AS bigint) * n / (:listeners + 1) END"
            " FROM generate_series(1, :listeners) AS n"
        ),
        {"events": events, "listeners": listeners},
    )
    connection.execute(
        text(
            "INSERT INTO outbox_deliveries (listener, position, event_id, event_type, key, state,"
            " due_at) SELECT 'listener' || 1 + n % :listeners, n, gen_random_uuid(), 'order.1',"
            " 'k' || n % 5000, 'parked', clock_timestamp() FROM generate_series(1, 10000) AS n"
        ),
        {"listeners": listeners},
    )
    connection.execute(
        text(
            "INSERT INTO outbox_dead_letters (listener, position, event_id, event_type, payload,"
            " event_created_at, reason) SELECT 'listener' || 1 + n % :listeners, n,"
            " gen_random_uuid(), 'order.1', '1', clock_timestamp(), 'attempts'"
            " FROM generate_series(1, 10000) AS n"
        ),
        {"listeners": listeners},
    )
    connection.commit()


@contextmanager
def address(given: str | None) -> Iterator[str]:
    if given is not None:
        yield given
        return
    with EmbeddedPostgres() as server:
        yield server.url()


def times(command: list[str], environment: dict[str, str]) -> list[float]:
    """Seconds that the whole process takes, again and again; the first one is not counted."""
    taken = []
    for number in range(TIMES + 1):
        began = perf_counter()
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        if number:
            taken.append(perf_counter() - began)
    return taken


def told(what: str, taken: list[float]) -> None:
    best, middle = min(taken) * 1000, median(taken) * 1000
    print(f"  {what:<34} best {best:4.0f} ms, median {middle:4.0f} ms")


def measure_processes(url: str) -> None:
    """The command, and beneath it what a Python process needs without a line of ours."""
    print(f"whole processes, {TIMES} times each")
    environment = {**os.environ, "SA_OUTBOX_DATABASE_URL": url}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed is compiled
    told(
        "sa-outbox status --json",
        times([sys.executable, "-m", "sa_outbox", "status", "--json"], environment),
    )
    connect = f"import asyncio, asyncpg; asyncio.run(asyncpg.connect({url!r}))"
    for what, program in (
        ("python, nothing else", "pass"),
        ("import click", "import click"),
        ("import click, asyncpg", "import click, asyncpg"),
        ("the same, and connect", f"import click; {connect}"),
        ("import sqlalchemy", "import sqlalchemy"),
        ("import sqlalchemy.ext.asyncio", "import sqlalchemy.ext.asyncio"),
    ):
        told(what, times([sys.executable, "-c", program], environment))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=50_000)
    parser.add_argument("--listeners", type=int, default=100)
    parser.add_argument("--database-url")
    options = parser.parse_args()
    with address(options.database_url) as url:
        engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
        described = tables(Names())
        with engine.connect() as connection:
            migrate(connection, Names())
            connection.commit()
            began = perf_counter()
            fill(connection, options.events, options.listeners)
            print(f"{options.events:,} events written in {perf_counter() - began:.0f} s")
            connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.execute(text("VACUUM ANALYZE"))
            taken = []
            for _ in range(TIMES):
                began = perf_counter()
                found = overview(connection, described)
                taken.append(perf_counter() - began)
            assert len(found.listeners) == options.listeners
        engine.dispose()
        print(f"overview(): median {median(taken) * 1000:.0f} ms, worst {max(taken) * 1000:.0f} ms")
        measure_processes(url)


if __name__ == "__main__":
    main()
