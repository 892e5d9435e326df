"""A terminal that shows one thing again and again: its screen, and keys without Enter."""

from __future__ import annotations

import select
import shutil
import sys
import termios
import tty
from typing import Any

ALTERNATE, ORDINARY = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""A screen of our own without a cursor; the one that was there before, as it was."""
HOME, END_OF_LINE, END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


class Screen:
    """Meanwhile what is shown replaces what was. What stood on the terminal comes back after."""

    def __enter__(self) -> Screen:
        sys.stdout.write(ALTERNATE)
        return self

    def __exit__(self, *_: object) -> None:
        sys.stdout.write(ORDINARY)
        sys.stdout.flush()

    @property
    def rows(self) -> int:
        return shutil.get_terminal_size().lines

    def show(self, text: str) -> None:
        """Written over the old, which is not cleared before: nothing flickers."""
        columns, rows = shutil.get_terminal_size()
        lines = [_cut(each, columns) for each in text.splitlines()[:rows]]
        sys.stdout.write(HOME + f"{END_OF_LINE}\n".join(lines) + END_OF_LINE + END_OF_SCREEN)
        sys.stdout.flush()


def _cut(line: str, columns: int) -> str:
    """Of a line that is too long; one in bold type is a table's, which fits."""
    fits = len(line) <= columns or "\x1b" in line
    return line if fits else f"{line[: columns - 1]}…"


class Keys:
    """Meanwhile a key that is pressed is read at once, and not shown."""

    def __enter__(self) -> Keys:
        self._before: list[Any] = termios.tcgetattr(sys.stdin)
        tty.setcbreak(sys.stdin.fileno())
        return self

    def __exit__(self, *_: object) -> None:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def pressed(self, seconds: float) -> str:
        """The key that is pressed within so many *seconds*; empty: none was."""
        try:
            ready, _, _ = select.select([sys.stdin], [], [], seconds)
        except KeyboardInterrupt:
            return "\x03"
        return sys.stdin.read(1) or "\x04" if ready else ""
