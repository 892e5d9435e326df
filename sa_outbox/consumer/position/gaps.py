"""A set of positions, kept as ranges: the ids below a cursor that are not settled yet."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class Gaps:
    """Positions as sorted, disjoint, inclusive ranges; neighbours are merged.

    Ranges, because a transaction that rolls back 100,000 events leaves as many ids unused.
    """

    __slots__ = ("_highs", "_lows")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []
        for low, high in ranges:
            self.add(low, high)

    @classmethod
    def parse(cls, text: str) -> Gaps:
        """From the JSON in the listener's row."""
        return cls((low, high) for low, high in json.loads(text))

    @classmethod
    def of(cls, ids: Sequence[int]) -> Gaps:
        """From single positions in order."""
        made = cls()
        if ids and ids[-1] - ids[0] + 1 == len(ids):  # most
            made._lows, made._highs = [ids[0]], [ids[-1]]
            return made
        for each in ids:
            if made._highs and made._highs[-1] == each - 1:
                made._highs[-1] = each
            else:
                made._lows.append(each)
                made._highs.append(each)
        return made

    def dump(self) -> str:
        if not self._lows:
            return "[]"
        return json.dumps(list(zip(self._lows, self._highs, strict=True)), separators=(",", ":"))

    def copy(self) -> Gaps:
        twin = Gaps()
        twin._lows, twin._highs = self._lows[:], self._highs[:]
        return twin

    def __bool__(self) -> bool:
        return bool(self._lows)

    def __len__(self) -> int:
        """How many ranges, not how many positions."""
        return len(self._lows)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(tuple(zip(self._lows, self._highs, strict=True)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Gaps):
            return NotImplemented
        return self._lows == other._lows and self._highs == other._highs

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __contains__(self, position: int) -> bool:
        at = bisect_right(self._lows, position) - 1
        return at >= 0 and position <= self._highs[at]

    def __repr__(self) -> str:
        return f"Gaps({list(self)})"

    @property
    def lows(self) -> list[int]:
        return self._lows

    @property
    def highs(self) -> list[int]:
        return self._highs

    @property
    def first(self) -> int:
        return self._lows[0]

    def add(self, low: int, high: int) -> None:
        if low > high:
            return
        lows, highs = self._lows, self._highs
        # Ranges that overlap or touch [low, high] are merged with it.
        start = bisect_left(highs, low - 1)
        end = bisect_right(lows, high + 1)
        if start < end:
            low = min(low, lows[start])
            high = max(high, highs[end - 1])
        lows[start:end] = [low]
        highs[start:end] = [high]

    def remove(self, position: int) -> None:
        at = bisect_right(self._lows, position) - 1
        if at < 0 or position > self._highs[at]:
            return
        low, high = self._lows[at], self._highs[at]
        left = [(low, position - 1)] if low < position else []
        right = [(position + 1, high)] if position < high else []
        kept = left + right
        self._lows[at : at + 1] = [each[0] for each in kept]
        self._highs[at : at + 1] = [each[1] for each in kept]

    def remove_up_to(self, position: int) -> None:
        """Forget everything at or below *position*."""
        at = bisect_right(self._lows, position)
        if not at:
            return
        rest = self._highs[at - 1]
        del self._lows[:at], self._highs[:at]
        if rest > position:
            self._lows.insert(0, position + 1)
            self._highs.insert(0, rest)

    def up_to(self, position: int) -> Gaps:
        """The part at or below *position*."""
        part = Gaps()
        at = bisect_right(self._lows, position)
        part._lows, part._highs = self._lows[:at], self._highs[:at]
        if at and part._highs[-1] > position:
            part._highs[-1] = position
        return part
