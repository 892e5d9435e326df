"""Fields that nobody may see: masked where a payload is shown, preserved where it is edited.

A pattern is the name of a field, at any depth, with ``*`` and ``?``; with dots it is the end of a
path: ``card.*`` is every field of every ``card``. Case does not matter, and items of an array count
as the array. A masked field is masked with everything in it.

In an edit each masked value has a number. The invariant: afterwards every masked value still exists
exactly once, unchanged, under the same field names. So it can neither be lost, nor moved to where
it would be shown, nor swapped with another field's: a password that becomes the name a service logs
would be exposed too. Items of an array may be reordered, each with its own values.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from sa_outbox.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MASK: Final = "••••••"
_NUMBERED: Final = re.compile(r"«masked ([1-9]\d{0,5})»")

Path: TypeAlias = tuple[str, ...]
"""The names of the fields that lead to a value, as written."""


class Hidden(NamedTuple):
    """The value behind a number in an edit."""

    path: Path
    value: Any


class EditRefused(ValueError):
    """An edit would lose or reveal a masked value, or is not JSON. Its text is for the visitor."""


class Masks:
    """Which fields are masked."""

    def __init__(self, patterns: Sequence[str]) -> None:
        if isinstance(patterns, str):
            raise ConfigError('mask is a sequence of patterns: mask=("password",)')
        for pattern in patterns:
            if not isinstance(pattern, str) or not all(pattern.split(".")):
                raise ConfigError(
                    f"mask: {pattern!r} is not a pattern such as password, *_token, card.*"
                )
        self._patterns = [tuple(each.casefold().split(".")) for each in patterns]

    def hides(self, path: Path) -> bool:
        folded = tuple(name.casefold() for name in path)
        return any(_ends_with(folded, pattern) for pattern in self._patterns)

    def shown(self, value: Any) -> Any:
        """*value* with every masked field's value replaced."""
        return self._replaced(value, (), lambda _: MASK)

    def numbered(self, value: Any) -> tuple[Any, dict[int, Hidden]]:
        """*value* for an edit, and the values behind its numbers."""
        if any(_NUMBERED.fullmatch(each) for each in _strings(self.shown(value))):
            raise EditRefused(
                "this payload holds text that looks like a masked value; it can't be edited here"
            )
        behind: dict[int, Hidden] = {}

        def number(hidden: Hidden) -> str:
            behind[len(behind) + 1] = hidden
            return f"«masked {len(behind)}»"

        return self._replaced(value, (), number), behind

    def restored(self, edited: Any, behind: Mapping[int, Hidden]) -> Any:
        """*edited* with its masked values restored. Raises :class:`EditRefused`."""
        found: list[tuple[int, Path]] = []
        restored = self._restored(edited, (), behind, found)
        numbers = [number for number, _ in found]
        if missing := sorted(behind.keys() - set(numbers)):
            names = ", ".join(f"«masked {each}»" for each in missing)
            raise EditRefused(f"masked values must stay: {names} is missing")
        if len(numbers) != len(set(numbers)):
            raise EditRefused("a masked value appears twice; each must stay where it was")
        for number, path in found:
            if path != behind[number].path:
                was = ".".join(behind[number].path)
                raise EditRefused(f"«masked {number}» belongs to {was}; leave it in its field")
        return restored

    def _replaced(self, value: Any, path: Path, replacement: Callable[[Hidden], Any]) -> Any:
        if isinstance(value, dict):
            return {
                name: replacement(Hidden((*path, name), each))
                if self.hides((*path, name))
                else self._replaced(each, (*path, name), replacement)
                for name, each in value.items()
            }
        if isinstance(value, list):
            return [self._replaced(each, path, replacement) for each in value]
        return value

    def _restored(
        self,
        value: Any,
        path: Path,
        behind: Mapping[int, Hidden],
        found: list[tuple[int, Path]],
    ) -> Any:
        if isinstance(value, dict):
            return {
                name: self._restored(each, (*path, name), behind, found)
                for name, each in value.items()
            }
        if isinstance(value, list):
            return [self._restored(each, path, behind, found) for each in value]
        numbered = _NUMBERED.fullmatch(value) if isinstance(value, str) else None
        if numbered is None:
            return value
        number = int(numbered[1])
        if number not in behind:
            raise EditRefused(f"there is no {value} in the original")
        if not self.hides(path):
            raise EditRefused(
                f"{value} was moved to where it would be shown; leave it in its field"
            )
        found.append((number, path))
        return behind[number].value


def _ends_with(path: Path, pattern: Path) -> bool:
    if len(pattern) > len(path):
        return False
    return all(map(fnmatchcase, path[len(path) - len(pattern) :], pattern))


def _strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for each in value.values() for text in _strings(each)]
    if isinstance(value, list):
        return [text for each in value for text in _strings(each)]
    return [value] if isinstance(value, str) else []
