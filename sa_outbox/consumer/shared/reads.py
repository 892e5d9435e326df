"""Read events: plain reads while they are small, careful ones otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sa_outbox.event.row import MATCHES, PAYLOAD
from sa_outbox.sql.log.large_events import BUDGET, SMALL

from ..fault.refusals import ReadRefused, Refusals

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..connection.connections import Asked, Query


def has_hidden(rows: list[Any]) -> bool:
    """Whether a plain read omitted an event's payload. Those of other types have none."""
    if None not in [row[PAYLOAD] for row in rows]:
        return False
    return any(row[PAYLOAD] is None and row[MATCHES] for row in rows)


class Reads:
    """The reads of one listener."""

    def __init__(self, refusals: Refusals | None = None) -> None:
        self.refusals: Refusals = Refusals() if refusals is None else refusals
        self._are_large = False
        """The events read last included large ones: the next ones may, too."""

    async def rows(
        self,
        asked: Asked,
        plain: Query,
        careful: Callable[[], Query],
        *,
        limit: int,
        **values: Any,
    ) -> tuple[list[Any], bool]:
        """Up to *limit* events; and whether there may be more."""
        refusals = self.refusals
        if refusals.most is not None:
            limit = min(limit, refusals.most)
        values["limit"] = limit
        place = values.get("cursor")
        if not refusals.known and not self._are_large:
            each = max(SMALL, BUDGET // limit)
            try:
                rows = await asked.rows(plain, **values, each=each)
            except Exception as error:
                if not refusals.is_evidence(place, error):
                    raise
                raise ReadRefused(careful(), values, error) from error
            if not has_hidden(rows):
                refusals.read(place, len(rows))
                return rows, len(rows) == limit
        rows = await self.carefully(asked, careful(), place, **values)
        self._are_large = any(row["size"] > SMALL for row in rows)
        is_cut = bool(rows) and rows[-1]["so_far"] >= BUDGET
        if is_cut:
            # The server has built the texts of all *limit* events, to return a few of them.
            refusals.most = len(rows)
        return rows, len(rows) == limit or is_cut

    async def carefully(
        self, asked: Asked, query: Query, place: object, **values: Any
    ) -> list[Any]:
        """A careful read. Raises :class:`ReadRefused`."""
        refused = self.refusals.named()
        try:
            rows = await asked.rows(query, **values, **refused)
        except Exception as error:
            if not self.refusals.is_evidence(place, error):
                raise
            raise ReadRefused(query, values, error) from error
        self.refusals.read(place, len(rows))
        return rows
