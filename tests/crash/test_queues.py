"""Queues, with real processes and real signals: nothing is lost, nothing is done twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic

import psycopg
import pytest

from tests.crash import queue_scene, scene
from tests.crash.consumers import consumers, write_event
from tests.crash.fleet import Fleet, Member, fleet
from tests.crash.seen import Findings, compare, read_log, read_seen
from tests.support import PATIENCE, eventually
from tests.support.writers import Mix, Population, busy_server

pytestmark = pytest.mark.long

APP = "tests.crash.queue_app:outbox"
SMALL = "tests.crash.queue_app:in_small_ranges"
WITH_SESSION = "tests.crash.queue_app:with_session"
EFFECTS = ("one_by_one", "in_batches")

MANY = int(os.environ.get("QUEUE_EVENTS", "3000"))
"""Enough for a minute or two on two cores. With more than 10,000 there is no queue "one_by_one",
whose transactions have one event each; the effects are those of the one with batches."""
LEASE = 3.0
SPARE = 4.0
"""Seconds that a busy machine may need beyond a lease."""


@pytest.fixture(autouse=True)
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the handlers leave their notes."""
    monkeypatch.setenv("QUEUE_NOTES", str(tmp_path))
    return tmp_path


def pass_time(seconds: float) -> None:
    """The pace of a scenario; nothing is waited for."""
    began = monotonic()
    eventually(lambda: monotonic() - began >= seconds, within=seconds + 10)


def a_holder(dsn: str, members: Fleet) -> Member:
    """A process that has a range."""
    found: list[Member] = []

    def look() -> bool:
        found.extend(each for each in members.members if held_by(dsn, each))
        return bool(found)

    eventually(look, within=30)
    return found[0]


def listening(*members: Member) -> None:
    eventually(lambda: all(each.said("listening") for each in members), within=40)


@pytest.mark.timeout(1800)
def test_kills_at_every_second_lose_nothing_and_double_no_effect(dsn: str, notes: Path) -> None:
    chance = random.Random(20261116)
    writing = threading.Thread(target=queue_scene.write_many, args=[dsn, MANY])
    longest = held = 0.0
    began = monotonic()
    with fleet(APP, dsn, lease_duration=LEASE) as members:
        listening(*(members.start() for _ in range(4)))
        writing.start()
        while not queue_scene.is_settled(dsn) or writing.is_alive():
            pass_time(1)
            longest = max(longest, queue_scene.abandoned_for(dsn))
            held = max(held, queue_scene.longest_lease(dsn))
            # On a busy machine a start takes seconds: with nobody there, nothing would be shown.
            there = [each for each in members.members if each.said("listening")]
            if len(there) > 2:
                chance.choice(there).kill()
                members.replace_the_dead()
        writing.join()
        # Once more, with few events that are held by whom the kill meets.
        queue_scene.write_slow(dsn, *["0.2"] * 40)
        victim = a_holder(dsn, members)
        victim.kill()
        killed = monotonic()
        eventually(lambda: queue_scene.is_settled(dsn), within=60)
        settled_after = monotonic() - killed

    print(  # noqa: T201 - measured
        f"{MANY} events, {members.deaths} kills, {monotonic() - began:.0f} s; "
        f"a range was nobody's for {longest:.1f} s at most; "
        f"settled {settled_after:.1f} s after the last kill; "
        f"times begun: {queue_scene.times_begun(queue_scene.read_notes(notes, 'plain'))}"
    )
    queue_scene.assert_effects_exactly_once(dsn, *(EFFECTS if MANY <= 10_000 else EFFECTS[1:]))
    assert scene.dead_letters(dsn) == []
    handled = queue_scene.read_notes(notes, "plain")
    ended = {at for at, each in handled.items() if any(note.ended for note in each)}
    assert ended == {each.position for each in read_log(dsn)}
    assert 0 < held <= LEASE, "whoever dies holds nothing for longer"
    # Free, a range waits until somebody has room: those who live are at work, and on a busy machine
    # each start takes seconds.
    assert longest < PATIENCE
    assert settled_after < LEASE + SPARE


@pytest.mark.timeout(120)
def test_no_two_processes_have_one_event_at_the_same_time(dsn: str, notes: Path) -> None:
    lease = 2 * LEASE  # none may be lost: also while others use the machine
    chance = random.Random(7)
    slow = [f"{chance.uniform(0.02, 0.3):.2f}" for _ in range(200)]
    for index in (20, 90):
        slow[index] = str(lease + 1.5)  # longer than a lease: it is renewed meanwhile
    for index in range(5, 200, 20):
        slow[index] = "fail_first"
    with fleet(SMALL, dsn, lease_duration=lease) as members:
        all_three = [members.start() for _ in range(3)]
        listening(*all_three)
        queue_scene.write_slow(dsn, *slow)
        eventually(lambda: queue_scene.is_settled(dsn), within=90)
        lost = [line for each in all_three for line in each.lines if "lease dropped" in line]

    handled = queue_scene.read_notes(notes, "small")
    shares = {note.pid for each in handled.values() for note in each}
    assert lost == [], "the machine was too slow for this lease"
    assert len(handled) == len(slow)
    assert queue_scene.overlaps(handled) == {}
    assert len(shares) == 3, "not all processes took part: this was no stress"
    again = {position for position, each in handled.items() if len(each) > 1}
    assert {slow[position - min(handled)] for position in again} <= {"fail_first"}
    queue_scene.assert_effects_exactly_once(dsn, "small_effects")


@pytest.mark.timeout(120)
def test_a_process_that_slept_past_its_lease_settles_nothing_of_its_ranges(
    dsn: str, notes: Path
) -> None:
    queue_scene.write_slow(dsn, *["1"] * 6)
    with fleet(SMALL, dsn, lease_duration=2) as members:
        sleeper = members.start()
        eventually(lambda: queue_scene.read_notes(notes, "small"), within=20)
        held = held_by(dsn, sleeper)
        sleeper.signal(signal.SIGSTOP)
        members.start()
        eventually(lambda: taken_over(dsn, held), within=20)
        eventually(lambda: queue_scene.is_settled(dsn), within=40)
        sleeper.signal(signal.SIGCONT)
        eventually(lambda: sleeper.said("lease dropped"), within=20)
        queue_scene.write_slow(dsn, *["0.1"] * 12)
        eventually(lambda: queue_scene.is_settled(dsn), within=20)

        assert sleeper.is_alive
    queue_scene.assert_effects_exactly_once(dsn, "small_effects")
    assert scene.dead_letters(dsn) == []


def held_by(dsn: str, member: Member) -> dict[int, int]:
    """The ranges of a process, with the tokens of their leases."""
    with psycopg.connect(dsn) as connection:
        return dict(
            connection.execute(
                "SELECT number, lease_token FROM outbox_ranges WHERE locked_by LIKE %s",
                [f"%:{member.pid}:%"],
            ).fetchall()
        )


def taken_over(dsn: str, held: dict[int, int]) -> bool:
    with psycopg.connect(dsn) as connection:
        now: dict[int, int] = dict(
            connection.execute("SELECT number, lease_token FROM outbox_ranges").fetchall()
        )
    return any(now.get(number, token) > token for number, token in held.items())


@pytest.mark.timeout(120)
def test_a_process_that_falls_asleep_while_it_takes_events_stops_nobody_for_longer_than_a_lease(
    dsn: str,
) -> None:
    with fleet(WITH_SESSION, dsn, lease_duration=2) as members:
        both = [members.start(), members.start()]
        listening(*both)
        queue_scene.write_many(dsn, 6000)
        sleeper = fall_asleep_in_a_transaction(dsn, both)
        # Asked for the lock itself: whether the other one takes events depends on what it has.
        eventually(lambda: nobody_holds_the_lock(dsn), within=2 + SPARE)
        sleeper.signal(signal.SIGCONT)
        eventually(lambda: queue_scene.is_settled(dsn), within=90)

    queue_scene.assert_effects_exactly_once(dsn, "with_session")


def nobody_holds_the_lock(dsn: str) -> bool:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '300ms'")
        try:
            connection.execute("SELECT FROM outbox_listeners FOR UPDATE")
        except psycopg.errors.LockNotAvailable:
            return False
    return True


def fall_asleep_in_a_transaction(dsn: str, members: list[Member]) -> Member:
    """Stop one of them while it has the lock of the queue; the process that sleeps now."""
    deadline = monotonic() + 40
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '300ms'")  # far longer than a take
        while monotonic() < deadline:
            for each in members:
                each.signal(signal.SIGSTOP)
                try:
                    connection.execute("SELECT FROM outbox_listeners FOR UPDATE")
                except psycopg.errors.LockNotAvailable:
                    return each
                each.signal(signal.SIGCONT)
                pass_time(0.01)
    raise AssertionError("no process was met while it had the lock")


@pytest.mark.timeout(120)
def test_sigterm_cuts_no_handler_off_and_what_is_left_is_taken_within_a_second(
    dsn: str, notes: Path
) -> None:
    queue_scene.write_slow(dsn, *["1"] * 8)
    with fleet(APP, dsn) as members:
        first = members.start()
        eventually(lambda: len(queue_scene.read_notes(notes, "plain")) == 8, within=30)
        second = members.start()
        listening(second)
        queue_scene.write_slow(dsn, *["0.5"] * 60)
        eventually(lambda: len(queue_scene.read_notes(notes, "plain")) > 8, within=30)

        assert first.terminate() == 0
        ended = monotonic()
        eventually(lambda: not queue_scene.abandoned_for(dsn), within=20)
        taken_within = monotonic() - ended
        eventually(lambda: queue_scene.is_settled(dsn), within=60)

    for listener in ("plain", "one_by_one"):
        handled = queue_scene.read_notes(notes, listener)
        assert {len(each) for each in handled.values()} == {1}, "a handler was cut off"
        assert all(note.ended for each in handled.values() for note in each)
        assert len(handled) == 68
    queue_scene.assert_effects_exactly_once(dsn, *EFFECTS)
    assert taken_within < 1.0


@pytest.mark.timeout(180)
def test_an_event_that_kills_the_process_is_a_dead_letter_of_each_queue_and_no_other_is(
    dsn: str,
) -> None:
    deadly = 11
    queue_scene.write_slow(dsn, *["0"] * (deadly - 1), "die", *["0"] * 20)
    with fleet(APP, dsn, lease_duration=1, max_crashes=2) as members:
        members.start()
        members.start()

        def settled() -> bool:
            members.replace_the_dead()
            return queue_scene.is_settled(dsn)

        eventually(settled, within=150)

    expected = [(name, deadly, "crashes", 0, 2) for name in sorted((*EFFECTS, "plain"))]
    assert scene.dead_letters(dsn) == expected
    queue_scene.assert_effects_exactly_once(dsn, *EFFECTS, but=(deadly,))


def stress(app: str, dsn: str, other_dsn: str, *, seconds: float, seed: int) -> Findings:
    """16 writers whose commits overtake each other, and two processes with one queue."""
    population = Population(dsn, seed=seed, mix=Mix(between=0.15))

    async def write() -> None:
        async with busy_server(dsn, other_dsn, seed=seed):
            await population.run(seconds)

    with psycopg.connect(dsn) as connection:
        write_event(connection, "first", 1)
    with consumers(app, dsn, processes=2):
        eventually(lambda: queue_scene.is_settled(dsn), within=40)  # they run
        asyncio.run(write())
        with suppress(AssertionError):  # what is missing is said better by the findings
            eventually(lambda: queue_scene.is_settled(dsn), within=60)
    log = read_log(dsn)
    assert population.committed.keys() <= {event.event_id for event in log}
    return compare(log, read_seen(dsn, "with_session"), population.committed)


def promises_broken(found: Findings) -> set[str]:
    """A queue has no order and may be late on a busy machine; the rest is promised."""
    return {name for name in ("lost", "doubled", "ghosts") if getattr(found, name)}


@pytest.mark.timeout(180)
def test_commits_that_overtake_each_other_are_taken_once_each(dsn: str, other_dsn: str) -> None:
    found = stress(WITH_SESSION, dsn, other_dsn, seconds=12, seed=1)

    assert promises_broken(found) == set(), found
    assert found.id_inversions, "no commit overtook another: this was no stress"


@pytest.mark.timeout(180)
def test_a_queue_that_forgets_the_holes_fails_the_same_test(dsn: str, other_dsn: str) -> None:
    found = stress("tests.crash.wrong_takers:without_holes", dsn, other_dsn, seconds=6, seed=1)

    assert "lost" in promises_broken(found), found
