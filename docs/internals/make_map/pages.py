"""The pages ``walk-*.md``: written from a walk, and read again by the test."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from .imports import PACKAGE
from .tracer import Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .tracer import Numbers
    from .walks import Walk

UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"
"""Front matter: the site's search leaves the page out, which has names of everything in it."""
MADE = "<!-- Made by `make map`: change that, not this. -->"
MOST_PAIRS = 10
SOMETIMES = "## Sometimes"

_ROOM = re.compile(r"^## `(?P<room>[^`]+)`$")
_STEP = re.compile(r"^\| [\d-]+ \| `(?P<file>[^`]+)` \| `(?P<function>[^`]+)` \|$")


def page_of(walk: Walk) -> str:
    """The numbers, then every step."""
    return "\n".join([*_head(walk), *_switches(walk), *_rooms(walk), ""])


def steps_on(page: str) -> tuple[frozenset[Step], frozenset[Step]]:
    """What a page has: steps that are always there, and those that are there sometimes."""
    always, sometimes = set[Step](), set[Step]()
    folder, steps = "", always
    for line in page.splitlines():
        if line == SOMETIMES:
            steps = sometimes
        elif room := _ROOM.match(line):
            folder = "" if room["room"] == f"{PACKAGE}/" else room["room"]
        elif step := _STEP.match(line):
            where = step["file"] if steps is sometimes else f"{folder}{step['file']}"
            steps.add(Step(where, step["function"]))
    return frozenset(always), frozenset(sometimes)


def _head(walk: Walk) -> Iterator[str]:
    typical = walk.typical
    numbers = typical.numbers()
    yield from (UNSEARCHED, f"# {walk.scene.title}")
    yield from ("", MADE, "", walk.scene.story, "")
    yield (
        "One event through a consumer that has handled others before, and every function of"
        f" `{PACKAGE}` that was called: from `session.add_event` until everybody waits again. Each"
        " resume of a coroutine counts as a call."
    )
    yield from ("", "| | calls | functions | modules | switches between modules |")
    yield "| --- | --- | --- | --- | --- |"
    yield _row("to the committed outcome", numbers)
    yield _row("until everybody waits again", typical.numbers(to_the_end=True))
    yield ""
    yield (
        "Steps are numbered in the order of their first call; those above"
        f" {numbers.functions} come after the outcome was committed. [The rooms](rooms.md) has"
        " the picture."
    )


def _row(what: str, numbers: Numbers) -> str:
    counted = (numbers.calls, numbers.functions, numbers.modules, numbers.switches)
    return f"| {what} | {' | '.join(f'{each:,}' for each in counted)} |"


def _switches(walk: Walk) -> Iterator[str]:
    yield from ("", "## Most switches", "", "Up to the committed outcome, in both directions.", "")
    yield from ("| between | and | switches |", "| --- | --- | --- |")
    for (one, other), count in walk.typical.switches().most_common(MOST_PAIRS):
        yield f"| `{one}` | `{other}` | {count} |"


def _rooms(walk: Walk) -> Iterator[str]:
    order = {step: at for at, step in enumerate(dict.fromkeys(walk.typical.calls), 1)}
    rooms = defaultdict[str, list[Step]](list)
    for step in order:
        if step in walk.always:
            rooms[step.room].append(step)
    for room, steps in rooms.items():
        yield from ("", f"## `{room}`", "")
        yield from _table((order[step], step.module.rpartition("/")[2], step) for step in steps)
    if walk.sometimes:
        yield from ("", SOMETIMES, "", "In some of the runs.", "")
        yield from _table(("-", step.module, step) for step in sorted(walk.sometimes))


def _table(rows: Iterable[tuple[object, str, Step]]) -> Iterator[str]:
    yield from ("| step | file | function |", "| --- | --- | --- |")
    for number, file, step in rows:
        yield f"| {number} | `{file}` | `{step.function}` |"
