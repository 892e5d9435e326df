"""A line diff of two texts that is fast for any input.

Lines that occur exactly once in both texts are matched (the longest sequence of them in order), and
what lies between is compared separately. Only a short stretch without such a line is searched for
the best fit; a long one is shown as removed and added. So a payload of a hundred thousand equal
lines takes no longer than any other: a best-fit search would take minutes there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Change: TypeAlias = Literal["same", "removed", "added", "left out"]
Changes: TypeAlias = list[tuple[Change, str]]

SHORT: Final = 400
"""Pairs of lines up to which the best fit is searched."""
AROUND: Final = 10
"""Unchanged lines shown before and after a change."""
MAX_LINES: Final = 5_000
"""Maximum lines of a diff on a page."""


def compare(before: str, after: str) -> Changes:
    """Every line of both, in order."""
    # Not splitlines: it splits at characters that JSON allows inside a line.
    return list(_compare(before.split("\n"), after.split("\n")))


def shortened(changes: Changes) -> Changes:
    """Without most unchanged lines, and short enough for a page."""
    near = bytearray(len(changes) + AROUND)
    for at, (kind, _) in enumerate(changes):
        if kind != "same":
            start = max(0, at - AROUND)
            near[start : at + AROUND + 1] = b"\1" * (at + AROUND + 1 - start)
    found: Changes = []
    for at, change in enumerate(changes):
        if len(found) == MAX_LINES:
            found.append(("left out", f"... ({len(changes) - at:,} more lines)"))
            break
        if near[at]:
            found.append(change)
        elif not found or found[-1][0] != "left out":
            found.append(("left out", "..."))
    return found


def _compare(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[Change, str]]:
    stretches = [(old, new)]
    while stretches:
        old, new = stretches.pop()
        start = _common(old, new)
        end = _common(old[start:][::-1], new[start:][::-1])
        yield from _all("same", old[:start])
        rest = old[start : len(old) - end], new[start : len(new) - end]
        tail = old[len(old) - end :]
        if tail:
            stretches.append((tail, tail))
        anchors = _anchors(*rest)
        if anchors:
            stretches.extend(reversed(_between(*rest, anchors)))
        else:
            yield from _best_fit(*rest)


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    """How many leading lines both share."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(old), len(new)))


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Positions of lines that occur once in both: the longest sequence in order."""
    in_old, in_new = Counter(old), Counter(new)
    place = {line: at for at, line in enumerate(new) if in_new[line] == 1}
    pairs = [
        (at, place[line]) for at, line in enumerate(old) if in_old[line] == 1 and line in place
    ]
    return _longest_rising(pairs)


def _longest_rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    tails: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for number, (_, b) in enumerate(pairs):
        at = bisect_left(tails, b)
        before.append(ends[at - 1] if at else -1)
        tails[at : at + 1] = [b]
        ends[at : at + 1] = [number]
    found: list[tuple[int, int]] = []
    number = ends[-1] if ends else -1
    while number >= 0:
        found.append(pairs[number])
        number = before[number]
    return found[::-1]


def _between(
    old: Sequence[str], new: Sequence[str], anchors: list[tuple[int, int]]
) -> list[tuple[Sequence[str], Sequence[str]]]:
    """The stretches between the anchors, each beginning with its anchor."""
    starts = [(0, 0), *anchors]
    stops = [*anchors, (len(old), len(new))]
    cut = [(old[a:c], new[b:d]) for (a, b), (c, d) in zip(starts, stops, strict=True)]
    return [each for each in cut if each[0] or each[1]]


def _best_fit(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[Change, str]]:
    if len(old) * len(new) > SHORT:
        yield from _all("removed", old)
        yield from _all("added", new)
        return
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            yield from _all("same", old[a:b])
        else:
            yield from _all("removed", old[a:b])
            yield from _all("added", new[c:d])


def _all(kind: Change, lines: Sequence[str]) -> Changes:
    return [(kind, line) for line in lines]
