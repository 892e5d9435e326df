"""What several tests need. One module per thing; here only how to wait."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def eventually(condition: Callable[[], object], *, within: float = 10.0) -> None:
    """Return as soon as *condition* is true; fail if it is not *within* seconds."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not true within {within} s: {condition}")
        time.sleep(0.02)
