"""``python -m benchmarks``: all of them, on an embedded PostgreSQL."""

from __future__ import annotations

import asyncio

from sa_outbox.embedded import EmbeddedPostgres

from . import (
    bench_consuming,
    bench_handlers,
    bench_idle,
    bench_retention,
    bench_scheduled,
    bench_sessions,
    bench_tenants,
)

DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
"""As in production; an embedded server of its own accord does not wait for the disk."""


def main() -> None:
    with EmbeddedPostgres(settings=DURABLE) as server:
        print(f"PostgreSQL {server.version}, durable, medians of {bench_sessions.ROUNDS} rounds")
        asyncio.run(bench_sessions.run(server))
    with EmbeddedPostgres(settings=DURABLE) as server:
        asyncio.run(bench_consuming.run(server))
    with EmbeddedPostgres(settings=DURABLE) as server:
        asyncio.run(bench_handlers.run(server))
    with EmbeddedPostgres(settings=DURABLE) as server:
        asyncio.run(bench_scheduled.run(server))
    with EmbeddedPostgres(settings=DURABLE) as server:
        asyncio.run(bench_tenants.run(server))
    with EmbeddedPostgres(settings=DURABLE | bench_idle.SETTINGS) as server:
        asyncio.run(bench_idle.run(server))
    with EmbeddedPostgres(settings=DURABLE) as server:
        asyncio.run(bench_retention.run(server))


if __name__ == "__main__":
    main()
