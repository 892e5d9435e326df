"""Commits overtake each other, and two consumer processes deliver everything all the same.

``test_wrong_readers.py`` shows that readers which are wrong by a hair fail this test.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import asyncpg
import psycopg
import pytest

from tests.crash.consumers import consumers, write_event
from tests.crash.seen import Findings, compare, read_log, read_seen
from tests.support import eventually
from tests.support.writers import Mix, Population, alongside, busy_server, pause

LISTENERS = ("by_key", "in_total", "plain")
PACE = Mix(between=0.15)
MAX_BEHIND = 30
"""Events that a listener may be behind before the writers wait for it: on a slow machine a backlog
would look like a delay. Who waits for a transaction elsewhere is delayed all the same."""


def counts(dsn: str) -> dict[str, int]:
    """How many events each listener has seen; the log's own number under ``""``."""
    with psycopg.connect(dsn) as connection:
        return dict(
            connection.execute(
                "SELECT '', count(*) FROM outbox UNION ALL"
                " SELECT listener, count(DISTINCT event_id) FROM seen GROUP BY listener"
            ).fetchall()
        )


def caught_up(dsn: str) -> bool:
    found = counts(dsn)
    return all(found.get(listener, 0) >= found[""] for listener in LISTENERS)


async def keep_pace(dsn: str, population: Population) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        while True:
            behind = await connection.fetchval(
                "SELECT (SELECT count(*) FROM outbox) - min(count)"
                " FROM (SELECT count(*) FROM seen GROUP BY listener) AS of_listener"
            )
            if behind > MAX_BEHIND:
                population.may_begin.clear()
            else:
                population.may_begin.set()
            await pause(0.05)
    finally:
        connection.terminate()


def examine(dsn: str, population: Population) -> dict[str, Findings]:
    log = read_log(dsn)
    assert population.committed.keys() <= {event.event_id for event in log}
    return {
        listener: compare(log, read_seen(dsn, listener), population.committed)
        for listener in LISTENERS
    }


@pytest.mark.long
@pytest.mark.timeout(150)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_listener_of_two_processes_sees_each_event_once_and_in_its_order(
    dsn: str, other_dsn: str, seed: int
) -> None:
    population = Population(dsn, seed=seed, mix=PACE)

    async def write() -> None:
        around = busy_server(dsn, other_dsn, seed=seed)
        async with around, alongside(keep_pace(dsn, population)):
            await population.run(10)

    with psycopg.connect(dsn) as connection:
        write_event(connection, "first", 1)
    with consumers("tests.crash.app:outbox", dsn, processes=2):
        eventually(lambda: caught_up(dsn), within=30)  # they run, and the start is in no delay
        asyncio.run(write())
        with suppress(AssertionError):  # what is missing is said better below
            eventually(lambda: caught_up(dsn), within=30)

    found = examine(dsn, population)
    assert {name: each.broken(in_id_order=name == "in_total") for name, each in found.items()} == {
        name: set() for name in LISTENERS
    }, found
    assert found["by_key"].id_inversions, "no commit overtook another: this was no stress"
