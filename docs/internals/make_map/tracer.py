"""Counts the calls of functions in ``sa_outbox``, in every thread that starts after it."""

from __future__ import annotations

import re
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from .imports import PACKAGE, ROOT

if TYPE_CHECKING:
    from types import FrameType

BY_THE_CLOCK = {
    "consumer/lease/alibi.py:Pulse.run": "beats every second, whether or not there are events",
}
"""Tasks that no event wakes, and that no setting makes rare: the function that each begins with."""

_FOLDER = f"{ROOT / PACKAGE}/"
_COMPREHENSION = re.compile(r"\.<locals>\.<(?:listcomp|setcomp|dictcomp|genexpr)>")


class Step(NamedTuple):
    """A function of the package; a comprehension is part of the function around it."""

    module: str
    function: str

    @property
    def room(self) -> str:
        folder, _, _ = self.module.rpartition("/")
        return f"{folder or PACKAGE}/"


@dataclass(frozen=True)
class Numbers:
    calls: int
    functions: int
    modules: int
    switches: int


@dataclass(frozen=True)
class Trace:
    """The calls that one event caused, in their order, over all threads and tasks."""

    calls: tuple[Step, ...]
    committed: int
    """How many there were when the outcome was committed."""

    def numbers(self, *, to_the_end: bool = False) -> Numbers:
        calls = self.calls if to_the_end else self.calls[: self.committed]
        modules = [each.module for each in calls]
        switches = sum(before != after for before, after in pairwise(modules))
        return Numbers(len(calls), len(set(calls)), len(set(modules)), switches)

    def switches(self) -> Counter[tuple[str, str]]:
        """How often it goes from one module to another or back, up to the outcome."""
        modules = [each.module for each in self.calls[: self.committed]]
        pairs = (sorted(pair) for pair in pairwise(modules) if pair[0] != pair[1])
        return Counter((one, other) for one, other in pairs)


class Tracer:
    """Every resume of a coroutine counts as a call, as the profiler of Python has it."""

    def __init__(self) -> None:
        self.calls: list[Step] = []

    def start(self) -> None:
        """In this thread, and in those that are yet to start: the notifier's is one."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def _profile(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(_FOLDER):
            return
        first = frame
        outer = frame.f_back
        while outer is not None:
            if outer.f_code.co_filename.startswith(_FOLDER):
                first = outer
            outer = outer.f_back
        if ":".join(_step(first)) not in BY_THE_CLOCK:
            self.calls.append(_step(frame))


def _step(frame: FrameType) -> Step:
    code = frame.f_code
    return Step(code.co_filename.removeprefix(_FOLDER), _COMPREHENSION.sub("", code.co_qualname))
