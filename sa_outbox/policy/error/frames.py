"""Where an error was raised: its frames, without the consumer's own, and what can be said of one.

A file is named by its place in the program (the module's), never by its place on the
machine: that may contain somebody's name, and changes with each deploy.
"""

from __future__ import annotations

import linecache
import re
import sysconfig
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple

MAX_FILE, MAX_FUNCTION, MAX_CODE_LINE = 150, 100, 120
"""Maximum length of a file's name, a function's name and a line of code, in characters."""

_ROOT: Final = Path(__file__).parent.parent.parent
_PACKAGE: Final = str(_ROOT / "_")[:-1]
_CONSUMER: Final = str(_ROOT / "consumer" / "_")[:-1]
"""Frames in here are left out: each traceback would begin with the same ones."""
_STANDARD: Final = tuple(
    str(Path(sysconfig.get_path(name)) / "_")[:-1] for name in ("stdlib", "platstdlib")
)
_INSTALLED: Final = re.compile(r"[\\/](?:site|dist)-packages[\\/]")
# Up to Python 3.11 a frame of its own, then none.
_COMPREHENSION: Final = re.compile(r"(?:\.<locals>)?\.<(?:list|dict|set)comp>$")


class Frame(NamedTuple):
    path: str
    """As it was compiled: for decisions, and never shown."""
    module: str
    line: int
    name: str
    variables: dict[str, Any]
    """The module's, to find its source code."""

    @property
    def file(self) -> str:
        """As much of the path as the module's name repeats; the last part at least."""
        if self.path.startswith("<"):
            return self.path[:MAX_FILE]
        parts = re.split(r"[\\/]", self.path)
        is_package = parts[-1].startswith("__init__.")
        names = parts[:-1] if is_package else [*parts[:-1], parts[-1].partition(".")[0]]
        same = 0
        for ours, theirs in zip(reversed(names), reversed(self.module.split(".")), strict=False):
            if ours != theirs:
                break
            same += 1
        kept = same + 1 if is_package else max(same, 1)
        return "/".join(parts[-kept:])[-MAX_FILE:]

    @property
    def function(self) -> str:
        return self.name[:MAX_FUNCTION]

    @property
    def code(self) -> str:
        """The line itself, if its file can be read."""
        try:
            found = linecache.getline(self.path, self.line, self.variables)
            return found[:1000].strip()[:MAX_CODE_LINE]
        except Exception:  # noqa: BLE001 - source files and their loaders may be anything
            return ""

    @property
    def is_standard(self) -> bool:
        """Whether it is Python's own. What is installed beside it is not."""
        if self.path.startswith("<frozen "):
            return True
        return self.path.startswith(_STANDARD) and not _INSTALLED.search(self.path)

    @property
    def is_library(self) -> bool:
        installed = self.path.startswith(_PACKAGE) or _INSTALLED.search(self.path) is not None
        return installed or self.is_standard


def frames_of(error: BaseException) -> list[Frame]:
    """Outermost first. Never raises."""
    found: list[Frame] = []
    try:
        step: object = error.__traceback__
    except BaseException:  # noqa: BLE001 - a class may have a property of this name
        return found
    while isinstance(step, TracebackType):
        frame = step.tb_frame
        code, variables = frame.f_code, frame.f_globals
        if not code.co_filename.startswith(_CONSUMER):
            module = variables.get("__name__")
            known = module if isinstance(module, str) else ""
            # None: an instruction without a line.
            found.append(
                Frame(code.co_filename, known, step.tb_lineno or 0, code.co_qualname, variables)
            )
        step = step.tb_next
    return found


def innermost_own(frames: list[Frame]) -> tuple[str, str] | None:
    """File and function of the last frame that is the program's own code, and not a library's.

    The program may be installed like a library: if all frames are of libraries, those are its own
    that are in the package of the first, the handler. Relays are handlers of ours.
    """
    first = next((each for each in frames if not each.is_standard), None)
    home = "" if first is None else first.module.partition(".")[0]
    at_home = [each for each in frames if home and each.module.partition(".")[0] == home]
    own = [each for each in frames if not each.is_library] or at_home or frames
    if not own:
        return None
    return own[-1].file, _COMPREHENSION.sub("", own[-1].name)[:MAX_FUNCTION]
