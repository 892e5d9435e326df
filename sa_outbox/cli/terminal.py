"""A terminal that redraws one view: its screen, and keys without Enter."""

from __future__ import annotations

import select
import shutil
import sys
import termios
import tty
from typing import Any

ALTERNATE, ORDINARY = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""Switch to the alternate screen without a cursor; switch back to the previous screen."""
HOME, END_OF_LINE, END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


class Screen:
    """While it is entered, each view replaces the previous one. Afterwards the old screen is
    back."""

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
        """Overwrites the old view without clearing it first, so nothing flickers."""
        columns, rows = shutil.get_terminal_size()
        lines = [_cut(each, columns) for each in text.splitlines()[:rows]]
        sys.stdout.write(HOME + f"{END_OF_LINE}\n".join(lines) + END_OF_LINE + END_OF_SCREEN)
        sys.stdout.flush()


def _cut(line: str, columns: int) -> str:
    """Truncate a line that is too long; a bold line is a table's, which fits."""
    fits = len(line) <= columns or "\x1b" in line
    return line if fits else f"{line[: columns - 1]}…"


class Keys:
    """While it is entered, a key press is read at once and not echoed."""

    def __enter__(self) -> Keys:
        self._before: list[Any] = termios.tcgetattr(sys.stdin)
        tty.setcbreak(sys.stdin.fileno())
        return self

    def __exit__(self, *_: object) -> None:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def pressed(self, seconds: float) -> str:
        """The key pressed within *seconds*; empty: none."""
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return sys.stdin.read(1) or "\x04" if ready else ""
