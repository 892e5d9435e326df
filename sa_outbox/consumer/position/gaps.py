"""A set of positions, kept as ranges: the ids below a cursor that are not settled yet."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


NO_GAPS = "[]"
"""As text, when there are none: by far the most."""


class Gaps:
    """Positions as sorted, disjoint, inclusive ranges; neighbours are merged.

    Ranges, because a transaction that rolls back 100,000 events leaves as many ids unused.
    """

    __slots__ = ("highs", "lows")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self.lows: list[int] = []
        """Empty if there are none: what is asked for every event is asked of this list."""
        self.highs: list[int] = []
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
            made.lows, made.highs = [ids[0]], [ids[-1]]
            return made
        for each in ids:
            if made.highs and made.highs[-1] == each - 1:
                made.highs[-1] = each
            else:
                made.lows.append(each)
                made.highs.append(each)
        return made

    def dump(self) -> str:
        if not self.lows:
            return NO_GAPS
        return json.dumps(list(zip(self.lows, self.highs, strict=True)), separators=(",", ":"))

    def copy(self) -> Gaps:
        twin = Gaps()
        twin.lows, twin.highs = self.lows[:], self.highs[:]
        return twin

    def __bool__(self) -> bool:
        return bool(self.lows)

    def __len__(self) -> int:
        """How many ranges, not how many positions."""
        return len(self.lows)

    @property
    def count(self) -> int:
        """How many positions."""
        return sum(self.highs) - sum(self.lows) + len(self.lows)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(tuple(zip(self.lows, self.highs, strict=True)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Gaps):
            return NotImplemented
        return self.lows == other.lows and self.highs == other.highs

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # it changes

    def __contains__(self, position: int) -> bool:
        at = bisect_right(self.lows, position) - 1
        return at >= 0 and position <= self.highs[at]

    def __repr__(self) -> str:
        return f"Gaps({list(self)})"

    @property
    def first(self) -> int:
        return self.lows[0]

    def add(self, low: int, high: int) -> None:
        if low > high:
            return
        lows, highs = self.lows, self.highs
        # Ranges that overlap or touch [low, high] are merged with it.
        start = bisect_left(highs, low - 1)
        end = bisect_right(lows, high + 1)
        if start < end:
            low = min(low, lows[start])
            high = max(high, highs[end - 1])
        lows[start:end] = [low]
        highs[start:end] = [high]

    def remove(self, position: int) -> None:
        at = bisect_right(self.lows, position) - 1
        if at < 0 or position > self.highs[at]:
            return
        low, high = self.lows[at], self.highs[at]
        left = [(low, position - 1)] if low < position else []
        right = [(position + 1, high)] if position < high else []
        kept = left + right
        self.lows[at : at + 1] = [each[0] for each in kept]
        self.highs[at : at + 1] = [each[1] for each in kept]

    def remove_up_to(self, position: int) -> None:
        """Forget everything at or below *position*."""
        at = bisect_right(self.lows, position)
        if not at:
            return
        rest = self.highs[at - 1]
        del self.lows[:at], self.highs[:at]
        if rest > position:
            self.lows.insert(0, position + 1)
            self.highs.insert(0, rest)

    def up_to(self, position: int) -> Gaps:
        """The part at or below *position*."""
        part = Gaps()
        at = bisect_right(self.lows, position)
        part.lows, part.highs = self.lows[:at], self.highs[:at]
        if at and part.highs[-1] > position:
            part.highs[-1] = position
        return part
