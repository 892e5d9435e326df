"""docs/lifecycle.md and ``sa_outbox.policy.delivery`` tell the same life of a delivery."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from sa_outbox.database.tables import STATES
from sa_outbox.policy import delivery
from sa_outbox.policy.delivery import TRANSITIONS

PAGE = Path(__file__).parent.parent.parent / "docs" / "lifecycle.md"
_MOVE = re.compile(r"^\| `(?P<before>\w+)` \| `(?P<after>\w+)` \|", re.MULTILINE)
_ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?!`)", re.MULTILINE)
_PICTURE = re.compile(r"```text\n(?P<lines>.*?)```", re.DOTALL)


def page() -> str:
    return PAGE.read_text()


def section(title: str) -> str:
    """From a heading to the next one of its rank."""
    marks = title.split(" ", maxsplit=1)[0]
    _, _, after = page().partition(f"\n{title}\n")
    return re.split(rf"\n{marks} ", after, maxsplit=1)[0]


class TestStates:
    def test_every_state_has_its_moves(self) -> None:
        assert set(TRANSITIONS) == set(get_args(delivery.State))
        assert {after for each in TRANSITIONS.values() for after in each} <= set(TRANSITIONS)

    def test_every_state_can_be_reached_and_left_unless_it_is_an_end(self) -> None:
        reached = {"waiting"}.union(*TRANSITIONS.values())

        assert reached == set(TRANSITIONS)
        ends = {state for state, after in TRANSITIONS.items() if not after}
        assert ends == {"done", "dead", "cancelled"}

    def test_states_with_a_row_are_those_of_the_table(self) -> None:
        assert set(STATES) == {"scheduled", "parked", "behind", "cancelled"}


class TestPage:
    def test_every_state_is_explained(self) -> None:
        explained = [each["name"] for each in _ROW.finditer(section("## States"))]

        assert sorted(explained) == sorted(TRANSITIONS)

    def test_every_move_is_in_the_table_and_no_other(self) -> None:
        told = {(each["before"], each["after"]) for each in _MOVE.finditer(page())}

        assert told == {(before, after) for before in TRANSITIONS for after in TRANSITIONS[before]}

    def test_every_state_is_in_the_picture(self) -> None:
        picture = _PICTURE.search(section("## States"))

        assert picture is not None
        assert set(TRANSITIONS) <= set(re.findall(r"\w+", picture["lines"]))

    def test_every_reason_of_a_dead_letter_is_explained(self) -> None:
        reasons = [each["name"] for each in _ROW.finditer(section("### `outbox_dead_letters`"))]

        assert sorted(reasons) == sorted(get_args(delivery.Reason))
