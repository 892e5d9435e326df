"""How far a listener has come: nothing is lost, nothing settled comes again, whatever crashes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.consumer.position.gaps import Gaps
from sa_outbox.consumer.position.horizon import HorizonSnapshot
from sa_outbox.consumer.position.progress import Progress, Saved
from tests.support.log_model import Consuming


class Reading(Consuming):
    """Reads as ``order="key"`` does: what is visible, holes or not."""

    def read_on(self, snapshot: HorizonSnapshot, room: int) -> tuple[list[int], bool]:
        progress = self.progress
        if not progress.holes and progress.read_to < snapshot.final:
            return self._read_final(snapshot, room)
        rows = self.log.read(
            cursor=progress.read_to, upper=snapshot.ceiling, limit=room, gaps=progress.holes
        )
        full = len(rows) == room
        upper = rows[-1].position if full else max(snapshot.ceiling, progress.read_to)
        matching = [row.position for row in rows if row.matches]
        progress.has_read([row.position for row in rows], matching, upper=upper, snapshot=snapshot)
        return matching, full

    def _read_final(self, snapshot: HorizonSnapshot, room: int) -> tuple[list[int], bool]:
        """Of what is final only the listener's own types are read."""
        rows = self.log.read(cursor=self.progress.read_to, upper=snapshot.final, limit=1000)
        found = [row.position for row in rows if row.matches][:room]
        full = len(found) == room
        upper = found[-1] if full else snapshot.final
        self.progress.has_read(found, found, upper=upper, snapshot=snapshot)
        return found, full or snapshot.ceiling > snapshot.final


def look_at(*, ceiling: int, final: int = 0) -> HorizonSnapshot:
    return HorizonSnapshot(number=1, ceiling=ceiling, final=final, writers=1)


class TestAnyOrderOfEvents:
    @given(st.integers(0))
    def test_every_event_is_delivered_until_it_is_settled_and_never_after(self, seed: int) -> None:
        Reading(seed).play(steps=200)


class TestReading:
    def test_what_is_missing_from_a_read_may_still_appear(self) -> None:
        progress = Progress(0)

        progress.has_read([2, 5], [2, 5], upper=5, snapshot=look_at(ceiling=5))

        assert progress.holes == Gaps([(1, 1), (3, 4)])
        assert progress.read_to == 5

    @pytest.mark.parametrize("final", [0, 2])
    def test_what_is_missing_at_the_end_of_a_read_may_still_appear_too(self, final: int) -> None:
        """A read mostly ends at an id that is visible, but nothing here relies on that."""
        progress = Progress(0)

        progress.has_read([1, 2], [1, 2], upper=3, snapshot=look_at(ceiling=3, final=final))
        assert progress.holes == Gaps([(3, 3)])

        progress.has_read([3], [3], upper=3, snapshot=look_at(ceiling=3, final=final))
        assert not progress.holes

    def test_what_is_missing_and_final_was_rolled_back(self) -> None:
        progress = Progress(0)

        progress.has_read([2, 5], [2, 5], upper=5, snapshot=look_at(ceiling=5, final=5))

        assert not progress.holes

    def test_a_hole_is_forgotten_by_a_read_after_it_became_final(self) -> None:
        progress = Progress(0)
        progress.has_read([2, 5], [2, 5], upper=5, snapshot=look_at(ceiling=5))

        progress.has_read([3], [3], upper=5, snapshot=look_at(ceiling=5, final=3))

        assert progress.holes == Gaps([(4, 4)])

    def test_a_read_that_met_its_limit_says_nothing_of_what_is_above_its_last_id(self) -> None:
        progress = Progress(9, Gaps([(1, 3), (6, 8)]).dump())

        progress.has_read([2], [2], upper=2, snapshot=look_at(ceiling=9, final=9))

        assert progress.holes == Gaps([(3, 3), (6, 8)])
        assert progress.read_to == 9

    def test_events_of_other_types_are_no_holes_and_need_no_settling(self) -> None:
        progress = Progress(0)

        progress.has_read([1, 2, 3], [2], upper=3, snapshot=look_at(ceiling=3))

        assert not progress.holes
        assert progress.unsettled == {2}

    def test_a_look_that_knows_less_than_was_read_takes_nothing_back(self) -> None:
        progress = Progress(0)
        progress.has_read([1, 3], [1, 3], upper=3, snapshot=look_at(ceiling=3))

        progress.has_read([], [], upper=3, snapshot=look_at(ceiling=0))

        assert progress.read_to == 3
        assert progress.holes == Gaps([(2, 2)])


class TestSaving:
    def saved(self, progress: Progress, *settled: int) -> tuple[int, str]:
        new = progress.after(settled)
        return new.position, new.gaps

    def test_the_cursor_passes_what_is_not_settled_and_keeps_it_as_a_gap(self) -> None:
        progress = Progress(0)
        progress.has_read([1, 2, 3], [1, 2, 3], upper=3, snapshot=look_at(ceiling=3, final=3))

        assert self.saved(progress, 2) == (2, "[[1,1]]")

    def test_the_cursor_stands_below_what_is_not_settled_when_nothing_above_it_is(self) -> None:
        progress = Progress(0)
        progress.has_read([1, 2, 3], [1, 2, 3], upper=3, snapshot=look_at(ceiling=3, final=3))

        assert self.saved(progress, 1) == (1, "[]")
        assert self.saved(progress) == (0, "[]")

    def test_the_cursor_moves_over_events_of_other_types(self) -> None:
        progress = Progress(0)
        progress.has_read([2], [2], upper=9, snapshot=look_at(ceiling=9, final=9))

        assert self.saved(progress, 2) == (9, "[]")

    def test_a_hole_is_saved_with_the_cursor_that_passes_it(self) -> None:
        progress = Progress(0)
        progress.has_read([1, 3, 6], [1, 3, 6], upper=6, snapshot=look_at(ceiling=6))

        assert self.saved(progress, 1) == (1, "[]")
        assert self.saved(progress, 1, 3) == (3, "[[2,2]]")
        assert self.saved(progress, 1, 3, 6) == (6, "[[2,2],[4,5]]")

    def test_a_late_event_leaves_the_cursor_where_it_is(self) -> None:
        progress = Progress(6, Gaps([(2, 2), (4, 5)]).dump())
        progress.has_read([4], [4], upper=6, snapshot=look_at(ceiling=6))

        assert self.saved(progress, 4) == (6, "[[2,2],[5,5]]")

    def test_a_late_event_at_the_cursor_stays_a_gap_until_it_is_settled(self) -> None:
        progress = Progress(3, "[[3,3]]")
        progress.has_read([3], [3], upper=3, snapshot=look_at(ceiling=3))

        assert self.saved(progress) == (3, "[[3,3]]")
        assert self.saved(progress, 3) == (3, "[]")

    def test_asking_what_would_be_saved_changes_nothing(self) -> None:
        progress = Progress(0)
        progress.has_read([1, 3], [1, 3], upper=3, snapshot=look_at(ceiling=3))

        assert progress.after([3]) == progress.after([3])
        assert progress.saved == Saved(0, "[]", revision=0)
        assert progress.unsettled == {1, 3}

    def test_each_state_is_known_by_a_number_of_its_own(self) -> None:
        """Two that look alike can be told apart, when the answer to a COMMIT was lost."""
        progress = Progress(5, revision=7)

        first = progress.after(())
        progress.settle((), first)
        second = progress.after(())

        assert first == Saved(5, "[]", revision=8)
        assert second == Saved(5, "[]", revision=9)

    def test_whoever_continues_reads_the_gaps_and_what_is_above(self) -> None:
        progress = Progress(0)
        progress.has_read([1, 2, 4], [1, 2, 4], upper=4, snapshot=look_at(ceiling=4))
        saved = progress.after([2, 4])
        progress.settle([2, 4], saved)

        heir = Progress(saved.position, saved.gaps, saved.revision)

        assert heir.saved == progress.saved == saved
        assert (heir.read_to, heir.holes) == (4, Gaps([(1, 1), (3, 3)]))


class ForgetsWhatALimitedReadDidNotReach(Progress):
    def has_read(
        self, ids: Sequence[int], matching: Iterable[int], *, upper: int, snapshot: HorizonSnapshot
    ) -> None:
        super().has_read(ids, matching, upper=upper, snapshot=snapshot)
        self.holes.remove_up_to(snapshot.final)


class TakesTheCeilingForFinal(Progress):
    def has_read(
        self, ids: Sequence[int], matching: Iterable[int], *, upper: int, snapshot: HorizonSnapshot
    ) -> None:
        super().has_read(ids, matching, upper=upper, snapshot=snapshot)
        self.holes.remove_up_to(min(snapshot.ceiling, upper))


class KeepsAHoleThatWasFilled(Progress):
    def has_read(
        self, ids: Sequence[int], matching: Iterable[int], *, upper: int, snapshot: HorizonSnapshot
    ) -> None:
        before = self.holes.copy()
        super().has_read(ids, matching, upper=upper, snapshot=snapshot)
        for each in ids:
            if each in before and each > snapshot.final:
                self.holes.add(each, each)


class NotesNoHoles(Progress):
    def _note_holes(self, ids: Sequence[int], upper: int) -> None:
        pass


class NotesOnlyTheFirstHole(Progress):
    def _note_holes(self, ids: Sequence[int], upper: int) -> None:
        super()._note_holes(ids[:1], ids[0] if ids else upper)


class SavesWhatIsReadAsSettled(Progress):
    def after(self, settled: Iterable[int]) -> Saved:
        return replace(super().after(settled), position=self.read_to, gaps=self.holes.dump())


class SavesNoGapForTheUnsettled(Progress):
    def after(self, settled: Iterable[int]) -> Saved:
        saved = super().after(settled)
        return replace(saved, gaps=self.holes.up_to(saved.position).dump())


class SavesNoHoles(Progress):
    def after(self, settled: Iterable[int]) -> Saved:
        gone = set(settled)
        saved = super().after(gone)
        left = [each for each in self.unsettled - gone if each <= saved.position]
        return replace(saved, gaps=Gaps((each, each) for each in left).dump())


class SavesHolesAboveThePosition(Progress):
    def after(self, settled: Iterable[int]) -> Saved:
        return replace(super().after(settled), gaps=self.holes.dump())


class GoesBackToALateEvent(Progress):
    def after(self, settled: Iterable[int]) -> Saved:
        gone = set(settled)
        saved = super().after(gone)
        position = max(gone, default=saved.position)
        gaps = Gaps.parse(saved.gaps).up_to(position)
        return replace(saved, position=position, gaps=gaps.dump())


class CountsOnlyWhatWasSettled(Progress):
    def after(self, settled: Iterable[int]) -> Saved:
        gone = set(settled)
        return replace(super().after(gone), revision=self.saved.revision + bool(gone))


class TestEachRuleIsNeeded:
    @pytest.mark.parametrize(
        "wrong",
        [
            ForgetsWhatALimitedReadDidNotReach,
            TakesTheCeilingForFinal,
            KeepsAHoleThatWasFilled,
            NotesNoHoles,
            NotesOnlyTheFirstHole,
            SavesWhatIsReadAsSettled,
            SavesNoGapForTheUnsettled,
            SavesNoHoles,
            SavesHolesAboveThePosition,
            GoesBackToALateEvent,
            CountsOnlyWhatWasSettled,
        ],
    )
    def test_without_it_the_machine_finds_a_fault(self, wrong: type[Progress]) -> None:
        machine = type(wrong.__name__, (Reading,), {"progress_class": wrong})

        assert any(fails(machine(seed)) for seed in range(100))


def fails(machine: Reading) -> bool:
    try:
        machine.play(steps=200)
    except AssertionError:
        return True
    return False
