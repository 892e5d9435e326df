"""Where an error was raised: its traceback, bounded and masked like its text, and its fingerprint.

Of the error and of each one that led to it: its class, and of its frames the file, line, function
and line of code. Never a local variable. Never an error's text: that is stored beside it, and is
not logged.

The fingerprint is what does not change while one thing fails: the error's class, and the innermost
frame of the program's own code, by file and function. Not the line, which moves with each change of
the file, and not the text, which quotes data. So it is equal in every process, and after a deploy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from .frames import frames_of, innermost_own
from .masking import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from .frames import Frame

MAX_ERRORS: Final = 10
"""Errors that are kept: the error, its causes, and members of groups."""
MAX_OUTER, MAX_INNER = 5, 25
"""Frames that are kept of each error: the outermost, and the innermost."""
MAX_TRACEBACK: Final = 6_000
"""Maximum length of all texts in a traceback, in characters, before they are masked."""
MAX_NAME: Final = 200
"""Maximum length of a class name, in characters."""
LENGTH: Final = 12
"""Characters of a fingerprint."""

Relation: TypeAlias = Literal["", "cause", "context", "member"]
"""To the error it led to: ``raise ... from`` it, raised while it was handled, a group with it."""
_RELATIONS = {
    "cause": " (the cause)",
    "context": " (handled when the next one was raised)",
    "member": " (a member of the group)",
}


class Step(NamedTuple):
    """A frame, as stored."""

    file: str
    line: int
    function: str
    code: str

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in self._asdict().items() if value}


@dataclass(frozen=True, slots=True)
class Raised:
    """One error of a traceback."""

    error: str
    """Name of its class."""
    relation: Relation
    steps: tuple[Step, ...]
    """Outermost first."""
    omitted: int = 0
    """Frames that are not kept."""
    omitted_after: int = 0
    """How many of the steps came before those."""

    def as_json(self) -> dict[str, Any]:
        kept: dict[str, Any] = {"type": self.error}
        if self.relation:
            kept["relation"] = self.relation
        kept["frames"] = [each.as_json() for each in self.steps]
        if self.omitted:
            kept |= {"omitted": self.omitted, "omitted_after": self.omitted_after}
        return kept


Traceback: TypeAlias = tuple[Raised, ...]
"""The error first, then what led to it."""


def traceback_of(error: BaseException, redact: Callable[[str], str] | None = None) -> Traceback:
    """Never raises."""
    room = MAX_TRACEBACK
    found: list[Raised] = []
    for relation, each in _chain(error):
        raised = _bounded(each, relation, room)
        room -= sum(map(len, _texts(raised)))
        found.append(raised)
    return _masked(found, redact)


def traceback_text(stored: Sequence[Mapping[str, Any]]) -> str:
    """What ``Raised.as_json`` returns, as Python prints it: the earliest error first."""
    return "\n\n".join("\n".join(_lines(each)) for each in reversed(stored))


def fingerprint_of(error: BaseException) -> str:
    """Of a group, that of its first member: every group would have one and the same place. Never
    raises."""
    for _ in range(MAX_ERRORS):
        members = members_of(error)
        if not members:
            break
        error = members[0]
    return fingerprint(name_of(error), innermost_own(frames_of(error)))


def fingerprint(error: str, place: tuple[str, str] | None = None) -> str:
    """Of an error class, by its name, that was raised at this file and function, if it was."""
    text = "\n".join((error, *(place or ())))
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:LENGTH]


def name_of(error: BaseException) -> str:
    """The name of its class, including its module unless it is a builtin."""
    return clean(_class_name(error))[:MAX_NAME]


def _class_name(error: BaseException) -> str:
    cls = type(error)
    try:
        module: object = cls.__module__
        known = isinstance(module, str) and module != "builtins"
        name = f"{module}.{cls.__qualname__}" if known else cls.__qualname__
    except BaseException:  # noqa: BLE001 - a class of classes is user code too
        name = type.__getattribute__(cls, "__name__")
    return name


def cause_of(error: BaseException) -> tuple[Relation, BaseException] | None:
    try:
        # Not "or": the truth value of an error is defined by its class.
        explicit = error.__cause__ is not None or error.__suppress_context__
        cause: object = error.__cause__ if explicit else error.__context__
    except BaseException:  # noqa: BLE001 - a class may have properties of these names
        return None
    if not isinstance(cause, BaseException):
        return None
    return ("cause" if explicit else "context"), cause


def members_of(error: BaseException) -> list[BaseException]:
    """The first members of a group; none of any other error."""
    if not isinstance(error, BaseExceptionGroup):
        return []
    try:
        given = list(islice(error.exceptions, MAX_ERRORS))
    except BaseException:  # noqa: BLE001 - a class may have a property of this name
        return []
    return [each for each in given if isinstance(each, BaseException)]


def _chain(error: BaseException) -> Iterator[tuple[Relation, BaseException]]:
    """The error, the members of groups, and the causes: each once, and ``MAX_ERRORS`` at most."""
    seen: set[int] = set()
    waiting: list[tuple[Relation, BaseException]] = [("", error)]
    while waiting and len(seen) < MAX_ERRORS:
        relation, each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield relation, each
        cause = cause_of(each)
        if cause is not None:
            waiting.append(cause)
        waiting.extend(("member", member) for member in reversed(members_of(each)))


def _bounded(error: BaseException, relation: Relation, room: int) -> Raised:
    """With those of its frames for which there is room, the innermost before the others."""
    frames, name = frames_of(error), _class_name(error)[:MAX_NAME]  # masked with the others
    are_many = len(frames) > MAX_OUTER + MAX_INNER
    ends = [*frames[:MAX_OUTER], *frames[-MAX_INNER:]] if are_many else frames
    kept = _innermost(ends, room - len(name))
    if len(kept) < len(ends):
        kept, after = kept[-MAX_INNER:], 0
    else:
        after = MAX_OUTER if are_many else 0
    return Raised(name, relation, tuple(kept), len(frames) - len(kept), after)


def _innermost(frames: Sequence[Frame], room: int) -> list[Step]:
    kept: list[Step] = []
    for each in reversed(frames):
        step = Step(each.file, each.line, each.function, each.code)
        room -= len(step.file) + len(step.function) + len(step.code)
        if room < 0:
            break
        kept.append(step)
    return kept[::-1]


def _texts(raised: Raised) -> list[str]:
    texts = [raised.error]
    for each in raised.steps:
        texts += (each.file, each.function, each.code)
    return texts


def _masked(found: Sequence[Raised], redact: Callable[[str], str] | None) -> Traceback:
    """All of it at once, which takes a tenth of the time; one by one if that has changed the number
    of lines: a mask may cover several of them."""
    texts = [text for each in found for text in _texts(each)]
    masked = clean("\n".join(texts), redact).split("\n")
    if len(masked) != len(texts):
        masked = [clean(text, redact) for text in texts]
    following = iter(masked)
    return tuple(
        replace(
            each,
            error=next(following),
            steps=tuple(
                Step(next(following), step.line, next(following), next(following))
                for step in each.steps
            ),
        )
        for each in found
    )


def _lines(raised: Mapping[str, Any]) -> Iterator[str]:
    frames, omitted = raised["frames"], raised.get("omitted", 0)
    for number, frame in enumerate([*frames, None]):
        if omitted and number == raised.get("omitted_after", 0):
            yield f"  ({omitted} frames are left out here)"
        if frame is not None:
            yield from _frame(frame)
    yield raised["type"] + _RELATIONS.get(raised.get("relation", ""), "")


def _frame(frame: Mapping[str, Any]) -> Iterator[str]:
    line = f", line {frame['line']}" if "line" in frame else ""
    yield f'  File "{frame.get("file", "?")}"{line}, in {frame.get("function", "?")}'
    if "code" in frame:
        yield f"    {frame['code']}"
