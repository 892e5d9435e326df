"""Whether a process was awake when it lost a lease."""

from __future__ import annotations

from typing import Any, cast

import pytest

from sa_outbox.consumer.lease.alibi import Alibis, Pulse
from sa_outbox.consumer.lease.lease import Lease

pytestmark = pytest.mark.anyio

LIVED: Any = "lived"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.pulse = Pulse(30.0, clock=lambda: self.now)  # it beats every half second

    def runs(self, seconds: float) -> None:
        for _ in range(int(seconds * 2)):
            self.now += 0.5
            self.pulse.beats()


class Database:
    """Says what it was told, unless it is away."""

    def __init__(self) -> None:
        self.told: list[int] = []
        self.away = False

    async def rows(self, query: str, **values: Any) -> list[Any]:
        assert query == LIVED
        if self.away:
            raise OSError
        self.told.append(values["token"])
        return []


def lost_lease(clock: Clock, token: int = 7) -> Lease:
    row: dict[str, Any] = {
        "name": "billing",
        "part": 0,
        "token": token,
        "position": 0,
        "gaps": "[]",
        "revision": 0,
        "retry_count": 0,
        "retry_position": None,
        "retry_in": None,
        "crashes": 0,
        "suspects": "{}",
        "owner": "us",
        "fingerprint": None,
    }
    return Lease(row, duration=30.0, began=clock.now, clock=lambda: clock.now)


class TestPulse:
    def test_a_loop_that_runs_has_not_slept(self) -> None:
        clock = Clock()
        clock.runs(60)

        assert clock.pulse.slept(since=0) == 0

    def test_a_late_beat_tells_for_how_long(self) -> None:
        clock = Clock()
        clock.now += 10.5
        clock.pulse.beats()
        clock.runs(5)

        assert clock.pulse.slept(since=0) == pytest.approx(10)
        assert clock.pulse.slept(since=clock.now - 4) == 0

    def test_a_beat_that_is_overdue_counts_before_it_comes(self) -> None:
        clock = Clock()
        clock.runs(5)
        clock.now += 8.5

        assert clock.pulse.slept(since=0) == pytest.approx(8)

    def test_many_short_sleeps_add_up(self) -> None:
        clock = Clock()
        for _ in range(5):
            clock.now += 4.5
            clock.pulse.beats()

        assert clock.pulse.slept(since=0) == pytest.approx(20)

    def test_a_busy_machine_is_not_asleep(self) -> None:
        clock = Clock()
        for _ in range(20):
            clock.now += 2.5
            clock.pulse.beats()

        assert clock.pulse.slept(since=0) == 0

    def test_what_is_long_past_is_forgotten(self) -> None:
        clock = Clock()
        clock.now += 20
        clock.pulse.beats()
        clock.runs(61)

        assert clock.pulse.slept(since=0) == 0


class TestAlibis:
    async def test_who_was_awake_says_so_once(self) -> None:
        clock, database = Clock(), Database()
        alibis, lease = Alibis(clock.pulse), lost_lease(clock)
        clock.runs(30)

        alibis.lost(lease, LIVED)
        await alibis.report(cast("Any", database))
        await alibis.report(cast("Any", database))

        assert not lease.is_blamed
        assert database.told == [7]

    async def test_who_was_asleep_or_blocked_says_nothing(self) -> None:
        clock, database = Clock(), Database()
        alibis, lease = Alibis(clock.pulse), lost_lease(clock)
        clock.now += 24

        alibis.lost(lease, LIVED)
        await alibis.report(cast("Any", database))

        assert lease.is_blamed
        assert database.told == []

    async def test_it_is_said_when_the_database_answers(self) -> None:
        clock, database = Clock(), Database()
        alibis = Alibis(clock.pulse)
        leases = [lost_lease(clock, token) for token in (3, 4)]
        clock.runs(30)
        for lease in leases:
            alibis.lost(lease, LIVED)

        database.away = True
        with pytest.raises(OSError):  # noqa: PT011 - no text to match
            await alibis.report(cast("Any", database))
        database.away = False
        await alibis.report(cast("Any", database))

        assert database.told == [3, 4]
