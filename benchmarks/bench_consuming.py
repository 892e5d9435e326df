"""What does delivering cost, against a cursor that a careful person writes by hand?

A backlog, and a handler that reads one field of its payload. Two cursors by hand, both with asyncpg
in batches of 500 with one UPDATE of a cursor row each: the lean one reads five columns, decodes
with orjson and makes no event object; the whole one makes the same ``Event`` for its handler, all
of it decoded. Both lose events when commits overtake each other, and have no lease, no time limit
and no retry: that is what there is to lose. Timed from the first event to the last. A ratio is
speed. Goal: order="key" and order="total" have at least 0.6 of the speed of the lean one.

Then once more as in a service: structlog is loaded, so each event is bound for the lines that its
handler logs, and metrics are counted. Beside the lean cursor, one that binds three of those names.
The goals are those of the first table.

``python -m benchmarks.bench_consuming``
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .alone import main
from .drains import Reader, context_cursor, fill, lean_cursor, prepared, whole_cursor
from .measure import Contestant, speeds, take_turns
from .report import Goal, Report

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from sa_outbox.embedded import EmbeddedPostgres

BACKLOG, ROUNDS = 50_000, 9
LISTENERS: dict[str, tuple[str, dict[str, Any]]] = {
    "key": ('order="key"', {}),
    "total": ('order="total"', {"order": "total"}),
    "none": ('order="none"', {"order": "none"}),
    "key_8": ('order="key", concurrency=8', {"concurrency": 8}),
}


GOALS = [Goal(row=f'order="{order}"', column="ratio", at_least=0.6) for order in ("key", "total")]


def contestants(dsn: str, engine: AsyncEngine) -> dict[str, Contestant]:
    reader = Reader({name: options for name, (_, options) in LISTENERS.items()})

    def listener(name: str) -> Contestant:
        return lambda: reader.drain(engine, name, BACKLOG)

    return {
        "asyncpg cursor by hand, orjson": lambda: lean_cursor(dsn, BACKLOG),
        "asyncpg cursor by hand, whole event": lambda: whole_cursor(dsn, BACKLOG),
        **{title: listener(name) for name, (title, _) in LISTENERS.items()},
    }


def with_context(dsn: str, engine: AsyncEngine) -> dict[str, Contestant]:
    names = ("key", "total", "none")
    reader = Reader({name: LISTENERS[name][1] for name in names})

    def listener(name: str) -> Contestant:
        return lambda: reader.drain(engine, name, BACKLOG, metrics=True)

    return {
        "asyncpg cursor by hand, orjson": lambda: lean_cursor(dsn, BACKLOG),
        "asyncpg cursor by hand, orjson, three names bound": lambda: context_cursor(dsn, BACKLOG),
        **{LISTENERS[name][0]: listener(name) for name in names},
    }


async def run(server: EmbeddedPostgres, report: Report) -> None:
    engine = await prepared(server.url("asyncpg"))
    await fill(engine, BACKLOG)
    times = await take_turns(contestants(server.url(), engine), ROUNDS)
    report.add(
        speeds(
            "drain",
            f"a backlog of {BACKLOG:,} events, a handler that reads one field",
            times,
            BACKLOG,
            goals=GOALS,
        )
    )
    importlib.import_module("structlog")
    report.add(
        speeds(
            "service",
            f"a backlog of {BACKLOG:,} events, with the context of log lines, and metrics",
            await take_turns(with_context(server.url(), engine), ROUNDS),
            BACKLOG,
            goals=GOALS,
        )
    )
    await engine.dispose()


if __name__ == "__main__":
    main("bench_consuming", run)
