"""Find which of some events can't be read or written, by bisection. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Bisection:
    """Try ``group`` and report the result, until there is none.

    Each event ends up among ``culprits`` or in a group that passed. An event is a culprit when it
    has failed alone as often as required: what failed once may pass.
    """

    def __init__(self, ids: Iterable[int]) -> None:
        first = list(ids)
        self._groups = [first] if first else []
        self._failed_alone = 0
        self.culprits: list[int] = []

    @property
    def group(self) -> list[int] | None:
        """The events to try together next; None: all are decided."""
        return self._groups[-1] if self._groups else None

    def passed(self, count: int | None = None) -> None:
        """The group passed, or only its first *count* events were tried."""
        group = self._groups.pop()
        rest = [] if count is None else group[max(1, count) :]
        if rest:
            self._groups.append(rest)
        self._failed_alone = 0

    def failed(self, enough: int) -> None:
        """The group failed. *enough*: how often a single event has to fail."""
        group = self._groups[-1]
        if len(group) > 1:
            middle = len(group) // 2
            self._groups[-1:] = [group[middle:], group[:middle]]
            return
        self._failed_alone += 1
        if self._failed_alone >= enough:
            self._groups.pop()
            self.culprits.append(group[0])
            self._failed_alone = 0
