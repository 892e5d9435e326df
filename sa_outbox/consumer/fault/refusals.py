"""Events that the database refuses to read, or whose outcome it refuses to write.

If the database is unreachable, we wait and blame nobody. If it answers and refuses, at the same
position, repeatedly, that is evidence against one event: ``loop/isolation.py`` finds out which, and
it is remembered here until it is settled. Reads then leave out its payload and headers, if
need be its key and tenant too, and the event becomes a dead letter, copied on the server.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from sa_outbox.event.row import MATCHES, PAYLOAD
from sa_outbox.policy.delivery import IllegalMove
from sa_outbox.policy.failure import Failure, describe
from sa_outbox.sql.log.large_events import BUDGET, SMALL

from ..connection.errors import Doubted, is_refusal, is_unreachable
from ..handler.delivery import InFlight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from uuid import UUID

    from ..connection.connections import Asked, Connection, Query

LOST_READS = 3
"""How often in a row a read at one position must lose its connection, while the database answers in
between, to count as a refusal."""
Part: TypeAlias = Literal["payload", "headers", "texts"]
PARTS: tuple[Part, ...] = ("payload", "headers", "texts")
Documents: TypeAlias = "dict[tuple[int, UUID], dict[str, Any]]"
"""What is to be written of events that are set aside, by position and event."""


@dataclass(frozen=True, slots=True)
class Refusal:
    event_id: UUID
    """Whose it is: after a failover, another event may stand at the position."""
    error: Exception
    without: tuple[Part, ...] = ()
    """What a copy of the event must omit."""


class ReadRefused(Exception):
    """A read that must not be repeated unchanged. *query* is the careful one."""

    def __init__(self, query: Query, values: dict[str, Any], error: Exception) -> None:
        super().__init__(query, error)
        self.query: Query = query
        self.values: dict[str, Any] = values
        self.error: Exception = error


class ParkRefused(Exception):
    """Events that a queue could not park: what was to be written for each, and the reason."""

    def __init__(self, documents: Documents, error: Exception) -> None:
        super().__init__(error)
        self.documents: Documents = documents
        self.error: Exception = error


class Refusals:
    """The refusals of one listener, in this process."""

    def __init__(self) -> None:
        self.known: dict[int, Refusal] = {}
        """By position."""
        self.most: int | None = None
        """Maximum number of events per read: more failed, although each of them can be read, or
        had too many bytes. Doubled with every read that succeeds."""
        self._place: object = None
        self._times = 0

    def named(self) -> dict[str, list[Any]]:
        """What a careful read leaves out, and of which events."""
        unnamed = [each for each, refusal in self.known.items() if "texts" in refusal.without]
        events = [refusal.event_id for refusal in self.known.values()]
        return {"refused": list(self.known), "unnamed": unnamed, "refused_events": events}

    def against(self, item: InFlight) -> Refusal | None:
        """The refusal of this event, if there is one."""
        found = self.known.get(item.position)
        return found if found is not None and found.event_id == item.event_id else None

    def is_evidence(self, place: object, error: Exception) -> bool:
        """Whether *error*, of a read at that *place*, counts as evidence against one of its
        events."""
        if is_refusal(error):
            return True
        if not is_unreachable(error) or isinstance(error, Doubted):
            return False  # when in doubt, it was not the read's own connection that ended
        self._times = self._times + 1 if place == self._place else 1
        self._place = place
        return self._times >= LOST_READS

    def read(self, place: object, count: int) -> None:
        """A read at that *place* returned *count* events."""
        if place == self._place:
            self._place, self._times = None, 0
        if self.most is not None and count:
            self.most = 2 * self.most if self.most < 2**15 else None

    def smaller(self, count: int) -> bool:
        """A read of *count* events fails, but none of them alone. False: it can't be any
        smaller."""
        if count <= 1:
            return False
        self.most = max(1, count // 2)
        return True

    def settled(self, items: Iterable[InFlight]) -> None:
        """Nothing is held against them any more, nor against what was lost at their positions."""
        if self.known:
            for item in items:
                self.known.pop(item.position, None)


def has_hidden(rows: list[Any]) -> bool:
    """Whether a plain read omitted an event's payload. Those of other types have none."""
    if None not in [row[PAYLOAD] for row in rows]:
        return False
    return any(row[PAYLOAD] is None and row[MATCHES] for row in rows)


class Reads:
    """The reads of one listener: plain while its events are small, careful otherwise."""

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


async def set_aside(
    connection: Connection, park: Query, listener: str, documents: Documents
) -> None:
    """Park events of a queue. Raises :class:`ParkRefused`."""
    document = json.dumps(list(documents.values()))
    try:
        await connection.rows(park, listener=listener, part=0, document=document)
    except Exception as error:
        if not is_refusal(error):
            raise
        raise ParkRefused(documents, error) from error


def condemn(
    item: InFlight, error: Exception, redact: Callable[[str], str] | None, without: tuple[Part, ...]
) -> None:
    """Make it a dead letter, because the database refuses it, or we do."""
    item.outcome, item.reason, item.without = "dead", "refused", without
    kept = describe(error, attempt=item.attempts, redact=redact)
    ours = isinstance(error, IllegalMove)
    message = kept.message if ours else f"the database refuses this event: {kept.message}"
    if without:
        named = ", ".join(without).replace("texts", "event type, key and tenant")
        message += f" (not copied in full: {named}; the log has it, at id {item.position})"
    item.failure = replace(kept, message=message)


def is_unattempted(item: InFlight) -> bool:
    """Whether it was to be set aside when it was read: no handler task had it."""
    return item.outcome == "schedule" and item.failure is None


def unreadable(
    row: Any, lane: object, refusals: Refusals, redact: Callable[[str], str] | None
) -> InFlight:
    """The dead letter for a row that came without a payload."""
    has_row = "state" in row.keys()  # noqa: SIM118 - not a dict
    item = InFlight(row, lane, aside=True)
    if has_row:
        item.attempts, item.state = row["attempts"], row["state"]
    refusal = refusals.against(item)
    if refusal is not None:
        condemn(item, refusal.error, redact, refusal.without)
        return item
    item.outcome, item.reason = "dead", "refused"
    text = f"this event has {row['size']:,} bytes as text: too large to be read"
    item.failure = Failure(item.attempts, "too-large", "too-large", text)
    return item
