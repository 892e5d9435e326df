"""4 -> 8 -> 3 partitions under load, with processes that are killed: each effect exactly once."""

from __future__ import annotations

import random
import threading
from contextlib import ExitStack
from datetime import timedelta
from time import monotonic

import anyio
import pytest

from sa_outbox.consumer import repartition
from tests.crash import scene
from tests.crash.fleet import Fleet, fleet
from tests.crash.partitions_app import outbox
from tests.support import eventually

APP = "tests.crash.partitions_app:outbox"
LISTENERS = ("by_key", "in_batches")
PARTITIONS = "SELECT count(*) FROM outbox_listeners WHERE name = %s"
HOLDERS = (
    "SELECT count(DISTINCT locked_by) FROM outbox_listeners"
    " WHERE name = %s AND lease_expires_at > clock_timestamp()"
)


@pytest.fixture
def database(dsn: str) -> str:
    scene.prepare(dsn)
    return dsn


def change(dsn: str, count: int) -> None:
    """Both listeners, one after the other, as an operator does it."""

    async def both() -> None:
        for name in LISTENERS:
            await repartition(outbox, dsn, name, count, within=timedelta(minutes=1))

    anyio.run(both)


def killing(members: Fleet, chance: random.Random, *, until: threading.Event) -> int:
    """kill -9 one of them now and then, and start another."""
    kills = 0
    while not until.wait(chance.uniform(0.3, 1.5)):
        chance.choice(members.members).kill()
        members.replace_the_dead()
        kills += 1
    return kills


@pytest.mark.long
@pytest.mark.timeout(420)
@pytest.mark.parametrize("seed", [1, 2])
def test_4_8_3_under_load_and_kills_loses_nothing_doubles_nothing_and_keeps_the_order(
    database: str, seed: int
) -> None:
    chance = random.Random(seed)
    with fleet(APP, database, lease_duration=2.5) as members:
        for _ in range(3):
            members.start()
        with ExitStack() as stack:
            for _ in range(3):
                stack.enter_context(scene.writing(database, pause=0.03))
            eventually(lambda: scene.one(database, HOLDERS, "by_key") == 3, within=30)
            for count in (8, 3):
                changed = threading.Event()

                def run(count: int = count, changed: threading.Event = changed) -> None:
                    try:
                        change(database, count)
                    finally:
                        changed.set()

                thread = threading.Thread(target=run)
                thread.start()
                killing(members, chance, until=changed)
                thread.join()
                for name in LISTENERS:
                    assert scene.one(database, PARTITIONS, name) == count
                # And on for a while, under kills.
                began = monotonic()
                enough = threading.Event()
                timer = threading.Timer(chance.uniform(1, 3), enough.set)
                timer.start()
                assert killing(members, chance, until=enough) >= 0
                assert monotonic() > began
        assert members.deaths > 0
        eventually(lambda: scene.has_seen_all(database, *LISTENERS), within=180)
        # Everybody has a share again.
        eventually(lambda: scene.one(database, HOLDERS, "by_key") == 3, within=30)

    scene.assert_each_effect_once(database, *LISTENERS)
    assert scene.dead_letters(database) == []


@pytest.mark.long
@pytest.mark.timeout(120)
def test_an_operation_that_is_killed_is_done_by_the_next_one(database: str) -> None:
    with fleet(APP, database, lease_duration=2) as members:
        members.start()
        members.start()
        with scene.writing(database, pause=0.005):
            eventually(lambda: scene.one(database, HOLDERS, "by_key") == 2, within=30)

            async def cut_off() -> None:
                for pause in (0.01, 0.05, 0.1, 0.2):
                    with anyio.move_on_after(pause):
                        await repartition(outbox, database, "by_key", 16)

            anyio.run(cut_off)
            change(database, 6)
            change(database, 1)
            change(database, 4)
        eventually(lambda: scene.has_seen_all(database, *LISTENERS), within=30)

    scene.assert_each_effect_once(database, *LISTENERS)
