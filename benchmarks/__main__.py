"""``make bench``: every benchmark that needs nothing but an embedded PostgreSQL. Five minutes."""

from __future__ import annotations

import argparse
import time

from . import (
    bench_bulk,
    bench_consuming,
    bench_handlers,
    bench_idle,
    bench_latency,
    bench_listeners,
    bench_notifier,
    bench_processes,
    bench_retention,
    bench_scheduled,
    bench_sessions,
    bench_tenants,
)
from .alone import DURABLE, Run, add_record, measure

RUNS: dict[str, Run] = {
    "bench_sessions": bench_sessions.run,
    "bench_bulk": bench_bulk.run,
    "bench_notifier": bench_notifier.run,
    "bench_consuming": bench_consuming.run,
    "bench_latency": bench_latency.run,
    "bench_handlers": bench_handlers.run,
    "bench_processes": bench_processes.run,
    "bench_listeners": bench_listeners.run,
    "bench_tenants": bench_tenants.run,
    "bench_scheduled": bench_scheduled.run,
    "bench_idle": bench_idle.run,
    "bench_retention": bench_retention.run,
}
SETTINGS = {"bench_idle": bench_idle.SETTINGS}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add_record(parser)
    given = parser.parse_args()
    began = time.monotonic()
    for name, run in RUNS.items():
        measure(name, run, record=given.record, settings=SETTINGS.get(name, DURABLE))
    print(f"\nall of them: {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
