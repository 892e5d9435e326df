"""Runs one benchmark, or several, each on an embedded PostgreSQL of its own."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Protocol

import uvloop

from sa_outbox.embedded import EmbeddedPostgres

from .report import Report

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

DURABLE: Mapping[str, str] = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
}
"""As in production; an embedded server of its own accord does not wait for the disk."""


class Run(Protocol):
    def __call__(self, server: EmbeddedPostgres, report: Report, /) -> Awaitable[None]: ...


def measure(
    name: str,
    run: Run,
    *,
    record: bool = False,
    settings: Mapping[str, str] = DURABLE,
    part: str = "",
) -> None:
    began = time.monotonic()
    with EmbeddedPostgres(settings={**DURABLE, **settings}) as server:
        report = Report(name, part=part)
        report.machine["PostgreSQL"] = f"{server.version}, durable"
        print(f"\n# {report.name}")
        report.introduce()

        async def whole() -> None:
            await run(server, report)

        uvloop.run(whole())
    print(f"\n{report.name}: {time.monotonic() - began:.0f} s")
    if record:
        report.write()


def main(name: str, run: Run, *, settings: Mapping[str, str] = DURABLE) -> None:
    """``python -m benchmarks.NAME``"""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    add_record(parser)
    given = parser.parse_args()
    measure(name, run, record=given.record, settings=settings)


def add_record(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--record", action="store_true", help="write the file in benchmarks/results"
    )
