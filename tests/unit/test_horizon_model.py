"""The grace period loses nothing in any interleaving, and each of its rules is needed for that.

These tests run a model of the protocol, not the code: they try the rules that the consumer
follows, with up to three writers. ``pytest -rP`` shows a shortest story of every wrong variant.
"""

from __future__ import annotations

import sys

import pytest

from tests.support.horizon_model import (
    ROUND,
    Fault,
    Log,
    Model,
    Program,
    Reader,
    Result,
    State,
    Variant,
    Writer,
    search,
)

ANYONE = Writer()
TWICE = Writer(("", ""))
PAIR = (ANYONE, ANYONE)
SAME_KEY = (Writer(("a",)), Writer(("b",)), Writer(("a",)))
TWO_OF_A_KEY = (Writer(("a", "a")), ANYONE, ANYONE)
ONE_SESSION = (ANYONE, Writer(("b",)), Writer(session_of=0))
SCENARIOS = {
    "two writers with two ids and one with one": (TWICE, TWICE, ANYONE),
    "a key that two of three change": SAME_KEY,
    "two events of a key in one transaction": TWO_OF_A_KEY,
    "two keys changed in both orders": (Writer(("a", "b")), Writer(("b", "a")), Writer(("a", "a"))),
    "a session with one transaction after another": ONE_SESSION,
}

by_order = pytest.mark.parametrize("strict", [False, True], ids=["eager", "strict"])


def counterexample(writers: tuple[Writer, ...], variant: Variant, fault: Fault) -> Result:
    """A shortest way to *fault*, which has to exist; written to the test's output."""
    result = search(writers, variant, frozenset({fault}))
    sys.stdout.write(f"{result}\n")
    assert result.fault is fault
    return result


class TestTheProtocol:
    @by_order
    @pytest.mark.parametrize("writers", SCENARIOS.values(), ids=SCENARIOS.keys())
    def test_every_committed_event_is_delivered_once_and_in_order(
        self, writers: tuple[Writer, ...], strict: bool
    ) -> None:
        result = search(writers, Variant(strict=strict))

        assert result.fault is None, str(result)
        assert result.states > 5_000

    @by_order
    @pytest.mark.parametrize(
        "writers",
        [SAME_KEY, TWO_OF_A_KEY, ONE_SESSION],
        ids=["one key twice", "two of a key", "one session"],
    )
    def test_events_below_the_cursor_and_its_holes_may_be_deleted_at_any_time(
        self, writers: tuple[Writer, ...], strict: bool
    ) -> None:
        """The newest too: then the ceiling falls."""
        result = search(writers, Variant(strict=strict, deletes="below holes"))

        assert result.fault is None, str(result)
        assert result.states > 5_000

    def test_a_strict_reader_has_no_holes_to_save(self) -> None:
        assert search(SAME_KEY, Variant(strict=True, saves_holes=False)).fault is None

    def test_late_rows_may_be_read_after_the_new_ones(self) -> None:
        """What the later statement shows in addition is older than all the earlier one did."""
        program = (("ceiling",), ("holders",), ("new",), ("late",))

        result = search(TWO_OF_A_KEY, Variant(program=program))

        assert result.fault is None, str(result)


class TestEachRuleIsNeeded:
    def test_a_reader_that_remembers_no_holes_loses_what_commits_late(self) -> None:
        result = counterexample(PAIR, Variant(remembers_holes=False), Fault.LOST)

        assert result.trace == [
            "w0 locks the log",
            "w0 draws id 1",
            "w1 locks the log",
            "w1 draws id 2",
            "w1 commits: 2 visible",
            "w1 releases its lock",
            "reader, ceiling: ceiling 2",
            "reader, holders: holders w0; final 0",
            "reader, late + new: delivers 2; cursor 2, holes none",
            "w0 commits: 1 2 visible",
            "w0 releases its lock",
            "nobody writes any more, and further rounds leave 1 behind",
        ]

    @by_order
    @pytest.mark.parametrize("fault", [Fault.NOT_FINAL, Fault.LOST], ids=lambda each: each.name)
    def test_locks_scanned_before_the_ceiling_miss_a_writer(
        self, strict: bool, fault: Fault
    ) -> None:
        program = (("holders",), ("ceiling",), ("late", "new"))

        counterexample(PAIR, Variant(strict=strict, program=program), fault)

    @by_order
    def test_rows_of_the_statement_that_scans_the_locks_are_older_than_the_scan(
        self, strict: bool
    ) -> None:
        """PostgreSQL takes the snapshot when a statement begins, and looks at locks as they are."""
        program = (("ceiling", "late", "new"), ("holders",))

        counterexample(PAIR, Variant(strict=strict, program=program), Fault.LOST)

    @by_order
    def test_a_look_after_the_read_says_nothing_about_what_the_read_did_not_show(
        self, strict: bool
    ) -> None:
        program = (("ceiling",), ("late", "new"), ("holders",))

        counterexample(PAIR, Variant(strict=strict, program=program), Fault.LOST)

    @by_order
    @pytest.mark.parametrize("fault", [Fault.NOT_FINAL, Fault.LOST], ids=lambda each: each.name)
    def test_a_server_that_released_locks_before_it_showed_the_commit_would_lose_events(
        self, strict: bool, fault: Fault
    ) -> None:
        variant = Variant(strict=strict, releases_before_visible=True)

        counterexample(PAIR, variant, fault)

    @by_order
    @pytest.mark.parametrize("fault", [Fault.NOT_FINAL, Fault.LOST], ids=lambda each: each.name)
    def test_an_id_cached_by_a_session_comes_too_late(self, strict: bool, fault: Fault) -> None:
        counterexample(ONE_SESSION, Variant(strict=strict, ids_cached=2), fault)

    def test_holes_that_are_not_saved_are_lost_with_the_process(self) -> None:
        result = counterexample(PAIR, Variant(saves_holes=False), Fault.LOST)

        assert "reader restarts" in result.trace

    def test_late_rows_read_before_the_new_ones_can_be_overtaken(self) -> None:
        """By an event of their own transaction, when it commits between the two statements."""
        program = (("ceiling",), ("holders",), ("late",), ("new",))

        counterexample(TWO_OF_A_KEY, Variant(program=program), Fault.OVERTAKEN)

    @pytest.mark.parametrize("fault", [Fault.OVERTAKEN, Fault.LOST], ids=lambda each: each.name)
    def test_late_rows_read_before_the_look_are_overtaken_or_lost(self, fault: Fault) -> None:
        program: Program = (("late",), *ROUND[:2], ("new",))

        counterexample(SAME_KEY, Variant(program=program), fault)

    def test_a_hole_above_which_everything_is_deleted_is_remembered_for_ever(self) -> None:
        """No look comes to its height any more, until somebody adds an event."""
        result = counterexample(PAIR, Variant(deletes="all"), Fault.WATCHED)

        assert "retention deletes 2" in result.trace


class TestTheChecks:
    """Faults that no variant above leads to: that they would be seen."""

    def test_an_event_that_is_not_visible_must_not_be_delivered(self) -> None:
        log = Log(("open",), ((1,),), (0,), next_id=2, held=1)

        assert fault_of(0b10, log, Reader()) is Fault.UNREAL

    def test_an_event_must_not_be_delivered_again(self) -> None:
        log = Log(("ended",), ((),), (0,), next_id=2, visible=0b10)

        assert fault_of(0b10, log, Reader(cursor=1, delivered=0b10)) is Fault.DOUBLED

    def test_a_hole_must_not_be_remembered_for_ever(self) -> None:
        log = Log(("ended",), ((),), (0,), next_id=3, visible=0b10)
        state = State(log, Reader(cursor=2, holes=0b100, delivered=0b10))

        assert Model((ANYONE,), Variant()).left_at_rest(state) == (Fault.WATCHED, 0b100)


def fault_of(batch: int, log: Log, reader: Reader) -> Fault | None:
    return Model((ANYONE,), Variant()).fault_of(batch, State(log, reader))
