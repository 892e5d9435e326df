"""Which of the events that were in flight when a session was lost is to blame, and when."""

from __future__ import annotations

from uuid import UUID

import anyio
import pytest

from sa_outbox.consumer.fault import suspects as module
from sa_outbox.consumer.fault.suspects import FREE_REFUSALS, Key, Suspects

X, Y, Z = (("l", n, UUID(int=n)) for n in (1, 2, 3))
ERROR = OSError("lost")


class Bench:
    """A clock that goes on with everything that happens."""

    def __init__(self) -> None:
        self.suspects = Suspects()
        self.now = 0.0

    def lose(self, *keys: Key) -> None:
        self.now += 1
        self.suspects.lost(keys, ERROR, at=self.now, lived=True)

    def outage(self, *in_flight: Key) -> None:
        """The server goes away with these in flight, each in a session of its own, and is back."""
        self.now += 1
        for key in in_flight:
            self.suspects.lost([key], ERROR, at=self.now, lived=False)
        self.suspects.answered(self.now + 0.5)

    def owes(self, key: Key) -> bool:
        return self.suspects.owed(key) is ERROR


@pytest.fixture
def bench() -> Bench:
    return Bench()


class TestTheServerLives:
    def test_the_first_loss_is_free_and_the_next_are_charged(self, bench: Bench) -> None:
        bench.lose(X)
        assert not bench.owes(X)
        for _ in range(3):
            bench.lose(X)
            assert bench.owes(X)
            bench.suspects.paid(X)
            assert not bench.owes(X)

    def test_nobody_of_a_batch_is_charged(self, bench: Bench) -> None:
        for _ in range(5):
            bench.lose(X, Y)

        assert not bench.owes(X)
        assert not bench.owes(Y)

    def test_after_its_batch_one_is_charged_for_the_first_loss_alone(self, bench: Bench) -> None:
        bench.lose(X, Y)
        bench.suspects.clear([Y])
        bench.lose(X)

        assert bench.owes(X)
        assert Y not in bench.suspects

    def test_one_that_was_done_is_no_suspect_any_more(self, bench: Bench) -> None:
        bench.lose(X)
        bench.suspects.clear([X])
        assert not bench.suspects.exist
        bench.lose(X)
        assert bench.suspects.exist

        assert not bench.owes(X)

    def test_there_are_some_as_long_as_the_server_is_out_or_one_is_not_cleared(
        self, bench: Bench
    ) -> None:
        bench.suspects.lost([], ERROR, at=1.0, lived=False)
        assert bench.suspects.exist
        bench.suspects.lost([X], ERROR, at=1.0, lived=False)
        bench.suspects.clear([X])
        assert bench.suspects.exist
        bench.suspects.answered(2.0)
        assert not bench.suspects.exist

        bench.outage(X)
        assert bench.suspects.exist


class TestTheServerGoesAway:
    def test_the_third_outage_in_a_row_with_one_event_in_flight_is_charged(
        self, bench: Bench
    ) -> None:
        bench.outage(X)
        bench.outage(X)
        assert not bench.owes(X)
        bench.outage(X)
        assert bench.owes(X)

    def test_outages_that_meet_different_events_are_free(self, bench: Bench) -> None:
        for n in range(30):
            bench.outage((X, Y, Z)[n % 3])

        assert not any(bench.owes(key) for key in (X, Y, Z))

    def test_an_outage_without_it_speaks_for_an_event(self, bench: Bench) -> None:
        bench.outage(X)
        bench.outage(X)
        bench.outage()  # nobody was in flight: nobody noticed
        bench.outage(Y)
        bench.outage(X)

        assert not bench.owes(X)

    def test_all_sessions_that_one_outage_ends_are_of_one_outage(self, bench: Bench) -> None:
        for _ in range(3):
            bench.suspects.lost([X], ERROR, at=1.0, lived=False)
            bench.suspects.answered(2.0)

        assert not bench.owes(X)

    def test_one_that_was_noticed_late_is_of_the_same_outage(self, bench: Bench) -> None:
        """Else it would speak for the one that has caused it."""
        bench.outage(X)
        bench.outage(X)
        bench.suspects.lost([Y], ERROR, at=bench.now, lived=False)
        bench.outage(X)

        assert bench.owes(X)

    async def _overlap(self, suspects: Suspects, *keys: Key) -> int:
        most = inside = 0

        async def attempt(key: Key) -> None:
            nonlocal most, inside
            async with suspects.turn([key]):
                inside += 1
                most = max(most, inside)
                await anyio.sleep(0)
                inside -= 1

        async with anyio.create_task_group() as tasks:
            for key in keys:
                tasks.start_soon(attempt, key)
        return most

    @pytest.mark.anyio
    async def test_after_one_outage_everybody_is_attempted_as_usual(self, bench: Bench) -> None:
        bench.outage(X, Y)

        assert await self._overlap(bench.suspects, X, Y) == 2

    @pytest.mark.anyio
    async def test_after_two_the_suspects_take_turns(self, bench: Bench) -> None:
        bench.outage(X)
        bench.outage(X, Y)

        assert await self._overlap(bench.suspects, X, Y) == 1
        assert await self._overlap(bench.suspects, X, Z) == 2  # Z is no suspect


class TestTrouble:
    def test_trouble_is_free_as_long_as_nobody_else_is_done(self, bench: Bench) -> None:
        for _ in range(30):
            bench.suspects.troubled([X], ERROR)
            bench.suspects.troubled([Y], ERROR)

        assert not bench.owes(X)

    def test_trouble_that_others_do_not_have_is_charged(self, bench: Bench) -> None:
        for _ in range(3):
            assert not bench.owes(X)
            bench.suspects.commits += 1
            bench.suspects.troubled([X], ERROR)

        assert bench.owes(X)


class TestRefusals:
    def test_what_is_refused_again_and_again_is_charged_at_last(self, bench: Bench) -> None:
        for _ in range(FREE_REFUSALS):
            bench.suspects.refused([X], ERROR)
            assert not bench.owes(X)
        bench.suspects.refused([X], ERROR)

        assert bench.owes(X)

    def test_nobody_of_a_batch_is_charged(self, bench: Bench) -> None:
        for _ in range(2 * FREE_REFUSALS):
            bench.suspects.refused([X, Y], ERROR)

        assert not bench.owes(X)


def test_the_memory_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SUSPECTS", 2)
    for key in (X, Y, Z):
        bench.lose(key)

    assert [key in bench.suspects for key in (X, Y, Z)] == [False, True, True]


class TestAnotherEventAtThePosition:
    """A failover lost the suspect, and its id was drawn again."""

    OTHER = (*X[:2], UUID(int=99))

    def test_it_owes_nothing_and_is_no_suspect(self, bench: Bench) -> None:
        for _ in range(5):
            bench.lose(X)

        assert bench.owes(X)
        assert not bench.owes(self.OTHER)
        assert self.OTHER not in bench.suspects
        assert not bench.suspects.concerns([self.OTHER])

    def test_its_first_loss_is_free(self, bench: Bench) -> None:
        for _ in range(5):
            bench.lose(X)

        bench.lose(self.OTHER)

        assert self.OTHER in bench.suspects
        assert not bench.owes(self.OTHER)

    def test_what_was_lost_is_forgotten_when_it_ends(self, bench: Bench) -> None:
        bench.lose(X)

        bench.suspects.clear([self.OTHER])

        assert not bench.suspects.exist
