"""How long does a committed event wait for its handler?

From the return of the commit to the start of the handler, producer and consumer in processes of
their own:

- idle, one event at a time; goals: medians of at most 0.8 ms (order="key") and 1.2 ms (a queue);
- under 500 commits per second from eight clients, each with one event. Goal: 99 of 100 events wait
  less than 20 ms.

``python -m benchmarks.bench_latency``
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .alone import main
from .drains import prepared
from .latency import commit_to_handler
from .measure import waits
from .report import Goal, Report

if TYPE_CHECKING:
    from sa_outbox.embedded import EmbeddedPostgres

ONE_AT_A_TIME = 120
RATE, SECONDS = 500, 6
MEDIANS = {"key": 0.8, "none": 1.2}


async def run(server: EmbeddedPostgres, report: Report) -> None:
    engine = await prepared(server.url("asyncpg"))
    await engine.dispose()
    url = server.url()
    idle = {
        f'order="{order}"': await commit_to_handler(url, order, ONE_AT_A_TIME) for order in MEDIANS
    }
    report.add(
        waits(
            "latency-idle",
            f"from a commit's return to the handler, {ONE_AT_A_TIME} events, one at a time",
            idle,
            goals=[
                Goal(row=f'order="{order}"', column="p50 ms", at_most=most)
                for order, most in MEDIANS.items()
            ],
        )
    )
    loaded = {
        f'order="{order}"': await commit_to_handler(url, order, RATE * SECONDS, rate=RATE)
        for order in MEDIANS
    }
    report.add(
        waits(
            "latency-load",
            f"from a commit's return to the handler, {RATE * SECONDS:,} events, {RATE} a second",
            loaded,
            goals=[Goal(row=row, column="p99 ms", at_most=20.0) for row in loaded],
        )
    )


if __name__ == "__main__":
    main("bench_latency", run)
