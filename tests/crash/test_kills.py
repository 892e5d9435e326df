"""Processes that die, sleep or are asked to go: each effect exactly once, and nobody waits long."""

from __future__ import annotations

import random
import signal
from time import monotonic

import pytest

from tests.crash import scene
from tests.crash.fleet import fleet
from tests.support import eventually

APP = "tests.crash.effects_app:outbox"
LISTENERS = ("by_key", "in_total", "in_batches")


@pytest.fixture
def database(dsn: str) -> str:
    scene.prepare(dsn)
    return dsn


@pytest.mark.long
@pytest.mark.timeout(240)
def test_thirty_kills_at_random_moments_leave_each_effect_exactly_once(database: str) -> None:
    chance = random.Random(20261116)
    with fleet(APP, database, lease_duration=1.5) as members:
        members.start()
        members.start()
        with scene.writing(database, pause=0.02):
            for _ in range(30):
                # The pace of the kills is the scenario; nothing is waited for.
                pause = chance.uniform(0.05, 1.6)
                began = monotonic()
                eventually(lambda: monotonic() - began >= pause, within=10)  # noqa: B023 - called at once
                chance.choice(members.members).kill()
                members.replace_the_dead()
        assert members.deaths == 30
        eventually(lambda: scene.has_seen_all(database, *LISTENERS), within=60)

    scene.assert_each_effect_once(database, *LISTENERS)
    assert scene.dead_letters(database) == []


@pytest.mark.long
@pytest.mark.timeout(90)
def test_a_process_that_slept_past_its_lease_settles_nothing(database: str) -> None:
    scene.write(database, then="slow", key="k")
    scene.write(database, 5, key="k")
    with fleet(APP, database, lease_duration=2) as members:
        sleeper = members.start()
        begun = "SELECT count(*) FROM begun WHERE pid = %s"
        eventually(lambda: scene.one(database, begun, sleeper.pid) == 3, within=20)
        sleeper.signal(signal.SIGSTOP)
        members.start()
        eventually(lambda: scene.has_seen_all(database, *LISTENERS), within=30)
        sleeper.signal(signal.SIGCONT)
        eventually(lambda: sleeper.said("lease dropped"), within=20)
        scene.write(database, 5, key="k")
        eventually(lambda: scene.has_seen_all(database, *LISTENERS), within=20)

        assert sleeper.is_alive
    scene.assert_each_effect_once(database, *LISTENERS)
    assert scene.dead_letters(database) == []


@pytest.mark.long
@pytest.mark.timeout(90)
def test_sigterm_cuts_no_handler_off_and_the_other_process_goes_on_within_a_second(
    database: str,
) -> None:
    scene.write(database, then="slow", key="k")
    with fleet(APP, database) as members:
        first = members.start()
        begun = "SELECT count(*) FROM begun WHERE pid = %s"
        eventually(lambda: scene.one(database, begun, first.pid) == 3, within=20)
        second = members.start()
        eventually(lambda: second.said("listening"), within=20)
        scene.write(database, 20)

        assert first.terminate() == 0
        ended = monotonic()
        eventually(lambda: scene.has_seen_all(database, *LISTENERS), within=20)
        took = monotonic() - ended

    assert scene.one(database, "SELECT count(*) FROM begun") == 3, "a handler was cut off"
    scene.assert_each_effect_once(database, *LISTENERS)
    # 20 events of three listeners are among it, on a machine that does other things as well.
    assert took < 1.0


@pytest.mark.long
@pytest.mark.timeout(120)
def test_an_event_that_kills_the_process_is_a_dead_letter_and_no_innocent_one_is(
    database: str,
) -> None:
    scene.write(database, 10)
    scene.write(database, then="die", key="deadly")
    scene.write(database, 10)
    scene.write(database, 2, key="deadly")
    with fleet(APP, database, lease_duration=1, max_crashes=2) as members:
        members.start()

        def settled() -> bool:
            members.replace_the_dead()
            return scene.has_seen_all(database, *LISTENERS)

        eventually(settled, within=90)

    deadly = [(name, 11, "crashes", 0, 2) for name in sorted(LISTENERS)]
    assert scene.dead_letters(database) == deadly
    scene.assert_each_effect_once(database, *LISTENERS)


def test_a_failing_event_blocks_its_key_or_its_listener_and_nobody_else(database: str) -> None:
    scene.write(database, 3)
    scene.write(database, then="fail", key="bad")
    scene.write(database, 2, key="bad")
    scene.write(database, 3)
    with fleet(APP, database) as members:
        members.start()
        eventually(lambda: scene.has_seen_all(database, *LISTENERS), within=20)

    failed = [(name, 4, "attempts", 3, 0) for name in sorted(LISTENERS)]
    assert scene.dead_letters(database) == failed
    scene.assert_each_effect_once(database, *LISTENERS)
