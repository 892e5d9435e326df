"""Python imports this at its start if this folder is on its path: packages that HIDDEN_PACKAGES
names are not found, as if they were not installed."""

from __future__ import annotations

import os
from importlib.machinery import PathFinder
from typing import Any

HIDDEN = frozenset(os.environ["HIDDEN_PACKAGES"].split())
find_spec = PathFinder.find_spec


def visible(name: str, *more: Any) -> Any:
    return None if name.partition(".")[0] in HIDDEN else find_spec(name, *more)


PathFinder.find_spec = visible  # type: ignore[method-assign, assignment]
