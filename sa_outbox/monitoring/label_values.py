"""Names that come from outside of the program as values of a label: only a limited number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

OTHER: Final = "other"


class LabelValues:
    """The first *limit* names that are *valid* are shown; every other one is ``other``.

    A name that the program has *declared* is always shown and needs no place: whoever writes many
    names into the log can't displace it. Two threads may exceed the limit by one name.
    """

    def __init__(
        self,
        limit: int,
        *,
        declared: Callable[[str], bool] = lambda _: False,
        valid: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._room = limit
        self._declared = declared
        self._valid = valid
        self._shown: set[str] = set()

    def __call__(self, name: str) -> str:
        if name in self._shown:
            return name
        if not self._declared(name):
            if self._room <= 0 or not self._valid(name):
                return OTHER
            self._room -= 1
        self._shown.add(name)
        return name
