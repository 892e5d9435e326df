"""What is final, against the truth: who can still make an id appear."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.consumer.position.horizon import NOTHING, Horizon, HorizonSnapshot
from tests.support.log_model import Log


def truly_final(log: Log) -> int:
    """Up to here no id can still appear: below the first that an open transaction has drawn."""
    return min(log.may_appear, default=log.next_id) - 1


class Watching:
    """Writers and one horizon, by chance; beside it, all snapshots there ever were."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.log = Log()
        self.horizon = Horizon()
        self.ever: list[tuple[int, set[str]]] = []
        self.expected = 0

    def play(self, steps: int) -> None:
        for _ in range(steps):
            self.change_the_log()
            if self.random.random() < 0.4:
                self.observe()

    def change_the_log(self) -> None:
        log, random = self.log, self.random
        match random.randint(1, 6):
            case 1 | 2 if len(log.open) < 8:
                log.draw(log.begin())
            case 3 if log.open:
                log.draw(random.choice(list(log.open)))
            case 4 if log.open:
                log.commit(random.choice(list(log.open)))
            case 5 if log.open:
                log.roll_back(random.choice(list(log.open)))
            case 6 if log.leaving:
                log.release(random.choice(sorted(log.leaving)))

    def observe(self) -> None:
        ceiling = self.log.ceiling
        for _ in range(self.random.randint(0, 2)):
            self.change_the_log()  # between the two questions
        holders = self.log.holders
        before = self.horizon.latest

        snapshot = self.horizon.observe(ceiling, holders)

        assert snapshot.final <= truly_final(self.log), "called final, and may still appear"
        assert snapshot.final >= before.final
        assert (snapshot.number, snapshot.ceiling) == (before.number + 1, ceiling)
        assert snapshot.writers == len(holders)
        assert self.horizon.latest is snapshot
        self.ever.append((ceiling, holders))
        # Every holder has a name of its own: of one that is not there any more, nothing comes.
        ended = [top for top, writers in self.ever if not writers & holders]
        self.expected = max([self.expected, *ended])
        assert snapshot.final == self.expected, "less than the snapshots show"
        assert len(self.horizon._pending) <= len(holders), "remembers too much"


class TestAnyOrderOfEvents:
    @given(st.integers(0))
    def test_it_is_never_ahead_of_the_truth_nor_behind_what_the_looks_tell(self, seed: int) -> None:
        Watching(seed).play(steps=100)

    @given(st.integers(0))
    def test_when_nobody_writes_everything_visible_is_final(self, seed: int) -> None:
        watching = Watching(seed)
        watching.play(steps=50)
        log = watching.log
        for writer in list(log.open):
            log.commit(writer)
        for writer in list(log.leaving):
            log.release(writer)

        snapshot = watching.horizon.observe(log.ceiling, log.holders)

        assert snapshot.final == log.ceiling
        assert watching.horizon._pending == []


class TestLooks:
    def test_before_the_first_look_nothing_is_known(self) -> None:
        assert Horizon().latest == NOTHING == HorizonSnapshot(0, 0, 0, 0)

    def test_without_writers_the_ceiling_is_final(self) -> None:
        assert Horizon().observe(7, set()) == HorizonSnapshot(
            number=1, ceiling=7, final=7, writers=0
        )

    def test_a_ceiling_is_final_when_the_last_of_its_writers_has_ended(self) -> None:
        horizon = Horizon()

        assert horizon.observe(7, {"a", "b"}).final == 0
        assert horizon.observe(9, {"b", "c"}).final == 0
        assert horizon.observe(9, {"c"}).final == 7

    def test_a_writer_that_stays_open_holds_back_only_what_was_visible_since_it_began(self) -> None:
        horizon = Horizon()
        horizon.observe(5, set())
        for ceiling in range(6, 20):
            horizon.observe(ceiling, {"old", f"w{ceiling}"})

        assert horizon.latest.final == 5

    def test_of_looks_that_wait_for_the_same_writers_the_highest_is_kept(self) -> None:
        horizon = Horizon()
        for ceiling in (5, 9, 7):
            horizon.observe(ceiling, {"old"})

        assert len(horizon._pending) == 1
        assert horizon.observe(9, {"new"}).final == 9

    def test_a_thousand_looks_at_one_open_transaction_are_one_memory(self) -> None:
        horizon = Horizon()
        for ceiling in range(1, 1000):
            horizon.observe(ceiling, {"old", f"w{ceiling}"})

        assert len(horizon._pending) <= 2

    def test_a_ceiling_that_comes_down_takes_nothing_back(self) -> None:
        horizon = Horizon()
        horizon.observe(9, set())

        assert horizon.observe(7, set()).final == 9

    def test_the_set_it_was_given_may_change_afterwards(self) -> None:
        horizon = Horizon()
        holders = {"a"}
        horizon.observe(3, holders)
        holders.clear()

        assert horizon.observe(3, {"a"}).final == 0

    def test_a_look_can_not_be_changed(self) -> None:
        with pytest.raises(AttributeError):
            NOTHING.final = 5  # type: ignore[misc]  # that is the point


class TestForgetting:
    def test_after_a_reconnect_nothing_is_final_and_the_numbers_go_on(self) -> None:
        horizon = Horizon()
        horizon.observe(5, set())
        horizon.observe(9, {"a"})

        horizon.forget()

        # Not snapshot 2 with nothing in it: who reads that would believe to have read snapshot 2.
        assert horizon.latest == NOTHING
        assert horizon.number == 2
        assert horizon.observe(9, {"renamed"}) == HorizonSnapshot(
            number=3, ceiling=9, final=0, writers=1
        )

    def test_writers_of_before_are_not_taken_for_ended(self) -> None:
        """A prepared transaction has another virtual id after the server restarted."""
        horizon = Horizon()
        horizon.observe(9, {"3/17"})

        horizon.forget()

        assert horizon.observe(9, {"-1/745"}).final == 0
        assert horizon.observe(9, set()).final == 9

    def test_a_log_that_is_shorter_after_a_failover_is_believed(self) -> None:
        horizon = Horizon()
        horizon.observe(100, set())

        horizon.forget()

        assert horizon.observe(90, set()) == HorizonSnapshot(
            number=2, ceiling=90, final=90, writers=0
        )
