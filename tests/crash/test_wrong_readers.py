"""The stress test finds what is wrong: readers that are wrong by a hair fail it, right ones don't.

The same test runs on the real consumer in ``test_commit_reorder.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.crash import wrong_readers
from tests.crash.seen import Findings, compare, read_log, read_seen
from tests.crash.wrong_readers import Eager, Reader, Strict
from tests.support.writers import Population, busy_server

pytestmark = pytest.mark.long

ROUND = 3.0
MAX_ROUNDS = 6
"""A round finds about ten lost events of the subtlest reader; it happens that it finds one."""

both_memories = pytest.mark.parametrize("memory", [Eager, Strict])


def stress(reader: Reader, dsn: str, other_dsn: str, *, seconds: float, seed: int) -> Findings:
    population = Population(dsn, seed=seed)

    async def run() -> None:
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(
                wrong_readers.run(reader, dsn, listener="stressed", seed=seed, over=over)
            )
            async with busy_server(dsn, other_dsn, seed=seed):
                await population.run(seconds)
            over.set()

    asyncio.run(run())
    log = read_log(dsn)
    assert population.committed.keys() <= {event.event_id for event in log}
    return compare(log, read_seen(dsn, "stressed"), population.committed)


def stress_until_it_loses(reader: Reader, new_copy: Callable[[], str]) -> Findings:
    for seed in range(MAX_ROUNDS):
        findings = stress(reader, new_copy(), new_copy(), seconds=ROUND, seed=seed)
        if findings.lost:
            break
    return findings


def test_eager_reader_keeps_every_promise(dsn: str, other_dsn: str) -> None:
    findings = stress(wrong_readers.reference_eager, dsn, other_dsn, seconds=9, seed=1)

    assert findings.broken() == set(), findings
    assert findings.id_inversions, "no commit overtook another: this was no stress"


def test_strict_reader_keeps_every_promise_and_the_order_of_ids(dsn: str, other_dsn: str) -> None:
    findings = stress(wrong_readers.reference_strict, dsn, other_dsn, seconds=9, seed=2)

    assert findings.broken(in_id_order=True) == set(), findings


@both_memories
def test_reader_without_grace_period_loses_events(
    memory: type[Eager | Strict], new_copy: Callable[[], str]
) -> None:
    reader = wrong_readers.reader(wrong_readers.look_without_grace, memory)

    assert "lost" in stress_until_it_loses(reader, new_copy).broken()


@both_memories
@pytest.mark.timeout(90)
def test_reader_that_looks_at_the_holders_before_the_ceiling_loses_events(
    memory: type[Eager | Strict], new_copy: Callable[[], str]
) -> None:
    reader = wrong_readers.reader(wrong_readers.look_at_holders_first, memory)

    assert "lost" in stress_until_it_loses(reader, new_copy).broken()


@both_memories
@pytest.mark.timeout(90)
def test_reader_that_asks_all_in_one_statement_loses_events(
    memory: type[Eager | Strict], new_copy: Callable[[], str]
) -> None:
    reader = wrong_readers.reader(wrong_readers.look_at_once, memory)

    assert "lost" in stress_until_it_loses(reader, new_copy).broken()


def test_reader_of_locks_in_any_database_waits_for_a_transaction_in_another(
    dsn: str, other_dsn: str
) -> None:
    reader = wrong_readers.reader(wrong_readers.look_in_any_database, Strict)

    findings = stress(reader, dsn, other_dsn, seconds=5, seed=1)

    assert findings.broken(in_id_order=True) == {"p90"}, findings


def test_reader_below_the_oldest_transaction_waits_for_it_and_turns_keys_round(
    dsn: str, other_dsn: str
) -> None:
    findings = stress(wrong_readers.behind_xmin, dsn, other_dsn, seconds=5, seed=1)

    assert findings.broken() == {"p90", "key_inversions"}, findings
