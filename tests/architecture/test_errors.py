"""The error tree: its picture, its classes and its page say the same."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from sa_outbox import errors
from sa_outbox.errors import OutboxError

PAGE = Path(__file__).parent.parent.parent / "docs" / "errors.md"
CLASSES: list[type[OutboxError]] = [
    each
    for each in vars(errors).values()
    if inspect.isclass(each) and issubclass(each, OutboxError)
]
_BRANCH = re.compile(r"^    (?P<lines>[│ ├└─]*)(?P<name>\w+)(?P<rest>.*)$")
_HEADING = re.compile(r"^### `(?P<name>\w+)` \(`(?P<code>[\w-]+)`\)$", re.MULTILINE)


class Refused(ValueError):
    """Equal to its copy, as values are."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Refused) and other.args == self.args

    __hash__ = ValueError.__hash__


MADE: dict[str, Callable[[], OutboxError]] = {
    "SomeFailed": lambda: errors.SomeFailed({UUID(int=7): Refused("no")}),
    "InvalidEvent": lambda: errors.InvalidEvent("why", field="key"),
    "WrongArgument": lambda: errors.WrongArgument("why", field="key"),
    "UnknownEventType": lambda: errors.UnknownEventType("why", field="event_type"),
    "CausationTooDeep": lambda: errors.CausationTooDeep("a.b", 4),
    "CausationTooWide": lambda: errors.CausationTooWide("a.b", 4),
    "ContractViolation": lambda: errors.ContractViolation("a.b", "tenant", "Pass it"),
    "NoHandler": lambda: errors.NoHandler("exports", "a.b"),
    "SecretFound": lambda: errors.SecretFound("a.b", "$.token", field="payload"),
    "CrossTenant": lambda: errors.CrossTenant("a.b"),
    "PayloadError": lambda: errors.PayloadError("why", path="$.a", field="headers"),
    "PayloadTooLarge": lambda: errors.PayloadTooLarge(5, 4, field="headers"),
    "LifespanError": lambda: errors.LifespanError("why", lifespan="clients"),
    "NotWritten": lambda: errors.NotWritten("outbox", expected=2, written=1),
    "DuplicateEvent": lambda: errors.DuplicateEvent(
        "why", idempotency_key="k", duplicate_of=UUID(int=7)
    ),
    "SchemaError": lambda: errors.SchemaError("why", problems=["a", "b"]),
    "RetryLater": lambda: errors.RetryLater("why", delay=timedelta(1)),
    "Reject": lambda: errors.Reject("why"),
}


def drawn() -> dict[str, tuple[str | None, str]]:
    """Name to parent and remark, from the picture in the docstring."""
    found: dict[str, tuple[str | None, str]] = {}
    above: list[tuple[int, str | None]] = []
    for line in (errors.__doc__ or "").splitlines():
        branch = _BRANCH.match(line)
        if branch is None:
            continue
        depth = len(branch["lines"])
        while above and above[-1][0] >= depth:
            above.pop()
        parent = above[-1][1] if above else None
        if branch["name"][0].isupper():
            found[branch["name"]] = (parent, branch["rest"])
            parent = branch["name"]
        # Otherwise a line that only groups: what hangs below it hangs on what is above it.
        above.append((depth, parent))
    return found


def headings() -> dict[str, str]:
    if not PAGE.exists():
        pytest.fail("docs/errors.md does not exist")
    return {each["name"]: each["code"] for each in _HEADING.finditer(PAGE.read_text())}


def bases(cls: type[OutboxError], *, ours: bool) -> list[str]:
    return [base.__name__ for base in cls.__bases__ if issubclass(base, OutboxError) is ours]


def make(cls: type[OutboxError]) -> OutboxError:
    return MADE[cls.__name__]() if cls.__name__ in MADE else cls("why")


class TestTree:
    def test_every_class_is_in_the_picture_and_no_other(self) -> None:
        assert sorted(drawn()) == sorted(each.__name__ for each in CLASSES)

    def test_every_class_hangs_where_the_picture_says(self) -> None:
        hangs = {each.__name__: bases(each, ours=True) for each in CLASSES}

        assert hangs == {name: [parent] if parent else [] for name, (parent, _) in drawn().items()}

    def test_the_builtin_it_is_too_is_in_the_picture(self) -> None:
        picture = {
            name: re.findall(r"\((\w+)\)$", remark.rstrip())
            for name, (_, remark) in drawn().items()
        }
        others = {each.__name__: bases(each, ours=False) for each in CLASSES}
        unsaid: list[list[str]] = [[], ["Exception"], ["TypeError"]]

        assert any(picture.values())
        assert {
            name: found
            for name, found in others.items()
            if found != picture[name] and (picture[name] or found not in unsaid)
        } == {}

    def test_there_is_no_error_outside_of_the_tree(self) -> None:
        defined = [each for each in vars(errors).values() if inspect.isclass(each)]

        assert [each for each in defined if each.__module__ == errors.__name__] == CLASSES

    def test_each_has_a_code_of_its_own(self) -> None:
        codes = {each: vars(each).get("code") for each in CLASSES}

        assert None not in codes.values()
        assert len(set(codes.values())) == len(codes)
        assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", str(code)) for code in codes.values())

    def test_each_says_what_happened(self) -> None:
        silent = [
            each
            for each in CLASSES
            if not (vars(each).get("__doc__") or "").partition("\n")[0].endswith((".", ";", ","))
            and "\n" not in (each.__doc__ or "")
        ]

        assert silent == []

    def test_each_survives_a_process_boundary(self) -> None:
        """Task queues and test runners pickle what went wrong."""
        for cls in CLASSES:
            error = make(cls)
            for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
                assert type(again) is cls
                assert str(again) == str(error), cls
                assert vars(again) == vars(error), cls


class TestPage:
    def test_every_class_has_a_heading_with_its_code(self) -> None:
        expected: dict[str, Any] = {each.__name__: each.code for each in CLASSES}

        assert headings() == expected

    def test_every_entry_says_something(self) -> None:
        assert headings()
        entries = re.split(r"^#{1,6} .*$", PAGE.read_text(), flags=re.MULTILINE)[1:]
        titles = re.findall(r"^#{1,6} .*$", PAGE.read_text(), flags=re.MULTILINE)
        empty = [
            title
            for title, entry in zip(titles, entries, strict=True)
            if _HEADING.match(title) and len(entry.strip()) < 40
        ]

        assert empty == []
