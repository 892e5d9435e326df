"""Plain English: words that made a reader stumble stay out of the code and the pages.

The list is short on purpose. It names what kept coming back, each with what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
CODE = sorted((ROOT / "sa_outbox").rglob("*.py"))
TESTS = sorted({*(ROOT / "tests").rglob("*.py")} - {Path(__file__)})
PAGES = sorted(
    [
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
    ]
)
WORDS = {
    r"\b[Ff]or ever\b": "forever",
    r"\b[Mm]end(s|ed|ing|able)?\b": "fix",
    r"\b[Tt]old\b": "emitted, reported, notified, or can be distinguished",
    r"\b[Ss]o many\b": "the number itself, or 'this many'",
    r"\b[Aa]s above\b": "the reason or the meaning itself: the lines above may move",
}
"""Patterns to what to write instead, for code and pages. ``AS above`` is SQL."""
IN_CODE = {
    r"\b(a|another|any|[Ff]irst|last|next|one|that|[Tt]he) look\b|\btwo looks\b": (
        "a read of the horizon, or its snapshot"
    ),
    r"\blook: (int|Horizon)|\blook\.(ceiling|final|number)\b|_looker\b": "snapshot, reader",
    r"\bshared: ConsumerContext\b|\bself\._?(shared|leasing|verifying|ticking)\b": (
        "context, leases, verification, crons: the name of the thing"
    ),
    r"\b[Bb]eg[aiu]n(s|ning)?[ _]again\b": "restart, repeat, retry",
    r"\b[Ii]n[ _]hand\b": "in flight",
    r"\b_?(taker|shelter|turnstile)\b": "claimer, shield, limits: the name of the thing",
    r"\b_?rest: RelayBackoff\b|\b_rest = RelayBackoff\b": "backoff: the name of the thing",
    r"\bchoice: Selection\b|\bchoice = (Selection\(|await self\._chooser)": (
        "selection: the name of the thing"
    ),
}
ELSEWHERE = {
    r'"""(The same|As above)\b': "a docstring that stands by itself",
    r"(noqa|ignore).*(-|#) (the same|as above|see above)$": "the reason itself",
}
"""What refers to a place that may move: for code and tests."""


def offenders(text: str, words: dict[str, str]) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, instead in words.items():
            if found := re.search(pattern, line):
                yield f"{number}: {found[0]!r}, write {instead}"


def listed(paths: list[Path], words: dict[str, str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{each}"
        for path in paths
        for each in offenders(path.read_text(), words)
    ]


def test_the_code_is_free_of_these_words() -> None:
    assert listed(CODE, WORDS | IN_CODE | ELSEWHERE) == []


def test_the_tests_refer_to_no_place_that_may_move() -> None:
    assert listed(TESTS, ELSEWHERE) == []


def test_the_pages_are_free_of_these_words() -> None:
    assert listed(PAGES, WORDS) == []


@pytest.mark.parametrize(
    "line",
    [
        "It waits for ever.",
        "A person can mend it.",
        "`LoopBlocked` is told once.",
        "After so many seconds it ends.",
        "As above, but for queues.",
        '    """The same without a range."""',
        "    # Before the first look nobody knows.",
        "    async def read(self, look: HorizonSnapshot) -> None:",
        "        self._shared = shared",
        "        await self.leasing.renew()",
        "        await self.conclusion.begin_again(items, again)",
        "    # It is given back when what it has in hand is settled.",
        "        self._taker = RangeClaimer(context, listener, owner)",
        "        with self.shelter.open():",
        "        self._turnstile.enter(tenant)",
        "    def __init__(self, port: Port, parts: Parts, rest: RelayBackoff) -> None:",
        "    def note(self, choice: Selection, taken: ClaimedRange) -> None:",
        "    import anyio  # noqa: PLC0415 - the same",
        "value = cast()  # type: ignore[arg-type]  # as above",
    ],
)
def test_a_line_that_has_one_is_found(line: str) -> None:
    assert list(offenders(line, WORDS | IN_CODE | ELSEWHERE))


def test_a_plain_line_is_not() -> None:
    lines = '"""Retry the same statement forever."""\nWe recommend three attempts; amend the rest.'
    lines += "\nIt looks like a masked value: look again, or call history.look()."
    lines += "\nIt begins against its will. rests_at = first, *rest = read; choice(events)"

    assert list(offenders(lines, WORDS | IN_CODE | ELSEWHERE)) == []
