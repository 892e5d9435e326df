"""``python -m benchmarks``: all of them, on an embedded PostgreSQL."""

from __future__ import annotations

import asyncio

from sa_outbox.embedded import EmbeddedPostgres

from . import bench_sessions


def main() -> None:
    with EmbeddedPostgres(settings={"synchronous_commit": "off"}) as server:
        print(f"PostgreSQL {server.version}, medians of {bench_sessions.ROUNDS} rounds")
        asyncio.run(bench_sessions.run(server))


if __name__ == "__main__":
    main()
