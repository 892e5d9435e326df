"""Keys of a terminal, without Enter."""

from __future__ import annotations

import select
import sys
import termios
import tty
from typing import Any


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
