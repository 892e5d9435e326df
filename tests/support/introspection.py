"""asyncpg asks each new connection about types it does not know, such as an array of numbers.

A plan of several milliseconds in the server, three times for each consumer, and always the same
answer for what every server has: a fifth of what a typical consumer test costs. In the tests' own
process it is asked once. Consumers in processes of their own ask as they would anywhere.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import asyncpg

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

FIRST_OF_USERS = 16_384
"""PostgreSQL's FirstNormalObjectId: types below it are the server's own."""


def remember_types(patch: pytest.MonkeyPatch) -> None:
    introspect = asyncpg.Connection._introspect_types
    known: dict[frozenset[int], list[Any]] = {}
    not_asked = SimpleNamespace(name="no statement of the caller was replaced")

    async def remembered(self: Any, oids: Iterable[int], timeout: float) -> tuple[Any, Any]:
        wanted = frozenset(oids)
        if max(wanted) >= FIRST_OF_USERS:
            found: tuple[Any, Any] = await introspect(self, wanted, timeout)
            return found
        if wanted not in known:
            known[wanted], asked = await introspect(self, wanted, timeout)
            return known[wanted], asked
        return known[wanted], not_asked

    patch.setattr(asyncpg.Connection, "_introspect_types", remembered)
