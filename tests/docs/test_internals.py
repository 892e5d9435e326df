"""The pages that ``make map`` writes are those it would write now.

Lines, counts and the order of steps may differ: they change with every commit, or by chance.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import URL

from docs.internals.make_map import imports, rooms
from docs.internals.make_map.imports import Room, RoomCycle
from docs.internals.make_map.pages import page_of, steps_on
from docs.internals.make_map.scenes import SCENES
from docs.internals.make_map.tracer import BY_THE_CLOCK, Step, Trace
from docs.internals.make_map.walks import Walk

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "internals"
MAKE_MAP = "docs.internals.make_map"
STALE = "the page is not up to date: run `make map`"


class TestRooms:
    def test_the_page_has_every_room_with_its_modules_and_imports(self) -> None:
        assert rooms.facts((FOLDER / "rooms.md").read_text()) == rooms.facts(rooms.page()), STALE

    def test_the_pictures_show_the_rooms_as_they_are(self) -> None:
        for name, picture in rooms.pictures().items():
            assert (FOLDER / name).read_text() == picture, f"{name}: {STALE}"

    def test_rooms_that_import_each_other_are_refused_even_for_types(self) -> None:
        one = Room("one", imports={"two"})
        two = Room("two", type_imports={"one"})

        with pytest.raises(RoomCycle, match=r"one -> two -> one|two -> one -> two"):
            imports.levels({"one": one, "two": two})

    @pytest.mark.parametrize("parent", imports.parents())
    def test_no_rooms_import_each_other_in_a_circle(self, parent: str) -> None:
        assert imports.levels(imports.rooms(parent))

    def test_an_import_that_follows_from_others_is_not_drawn(self) -> None:
        found = {
            "top": Room("top", imports={"middle", "bottom"}),
            "middle": Room("middle", type_imports={"bottom"}),
            "bottom": Room("bottom"),
        }

        assert imports.levels(found) == [["bottom"], ["middle"], ["top"]]
        assert imports.direct(found) == {"top": {"middle"}, "middle": {"bottom"}, "bottom": set()}

    def test_imports_for_types_are_told_apart_from_those_inside_functions(
        self, tmp_path: Path
    ) -> None:
        source = (
            "from typing import TYPE_CHECKING\n"
            "from . import a\n"
            "if TYPE_CHECKING:\n    from ..p.b import B\n"
            "def f():\n    import q.p.c\n"
        )
        module = tmp_path / "m.py"
        module.write_text(source)
        empty = tmp_path / "empty.py"
        empty.write_text("")
        modules = {"q.p.m": module, "q.p.a": empty, "q.p.b": empty, "q.p.c": empty}

        found = {(each.imported, each.for_types) for each in imports.imports(modules)}

        assert found == {("q.p.a", False), ("q.p.b", True), ("q.p.c", False)}


class TestWalks:
    @pytest.mark.long
    @pytest.mark.parametrize("name", SCENES)
    def test_the_page_has_the_steps_of_the_walk(
        self, name: str, new_database: Callable[[], URL]
    ) -> None:
        """A few runs each time. On the page and in none of them: gone. In all of them and not on
        the page: new. Chance, a slow machine for one, is neither."""
        url = new_database().set(drivername="postgresql+asyncpg")
        address = url.render_as_string(hide_password=False)
        made = subprocess.run(
            [sys.executable, "-m", MAKE_MAP, "--walk", name, "--database", address],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        always, sometimes = steps_on(made.stdout)
        known, known_sometimes = steps_on((FOLDER / f"walk-{name}.md").read_text())

        assert len(always) > 100, made.stdout
        assert sorted(always - known - known_sometimes) == [], f"new steps; {STALE}"
        assert sorted(known - always - sometimes) == [], f"steps that are gone; {STALE}"

    def test_every_page_is_of_a_walk(self) -> None:
        pages = {path.name for path in FOLDER.glob("walk-*.md")}

        assert pages == {f"walk-{name}.md" for name in SCENES}

    def test_what_is_written_is_read(self) -> None:
        top, inner = Step("observe.py", "Observers.tell"), Step("consumer/loop/task.py", "run")
        chance = Step("consumer/loop/loop.py", "wake")
        scene = SCENES["session"]
        walk = Walk(scene, (Trace((top, inner, top), 2), Trace((top, chance, inner), 3)))

        assert steps_on(page_of(walk)) == (frozenset({top, inner}), frozenset({chance}))

    def test_switches_are_counted_between_modules_up_to_the_outcome(self) -> None:
        one, two, other = Step("a.py", "f"), Step("a.py", "g"), Step("b.py", "f")
        trace = Trace((one, two, other, one, other), 4)

        assert trace.numbers().switches == 2
        assert trace.numbers(to_the_end=True).switches == 3
        assert trace.switches() == {("a.py", "b.py"): 2}

    def test_what_is_left_out_by_the_clock_exists(self) -> None:
        for name, reason in BY_THE_CLOCK.items():
            module, _, function = name.partition(":")
            source = (ROOT / "sa_outbox" / module).read_text()
            assert f"def {function.rpartition('.')[2]}(" in source, name
            assert len(reason) > 20
