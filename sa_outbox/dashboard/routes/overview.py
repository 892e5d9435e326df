"""The overview, its stream, and events: nothing here changes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from starlette.exceptions import HTTPException
from starlette.responses import Response

from sa_outbox.operations.causation import causation_of
from sa_outbox.operations.choices import event_choices
from sa_outbox.operations.events import EventFilter, list_events, show_event

from .. import query
from ..views.causation import causation_panel
from ..views.events import event_address, event_page, events_page
from ..views.overview import live_texts, overview_page
from .reply import Answers, lead_to, page

if TYPE_CHECKING:
    from starlette.requests import Request

_FIELDS: Final = ("type", "key", "tenant", "id", "since", "until", "before")


class LookingAnswers(Answers):
    async def overview(self, request: Request) -> Response:
        seen = await self.dashboard.history.look()
        return page(overview_page(self.frame(request), seen, self.dashboard.history))

    async def live(self, request: Request) -> Response:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        frame, history = self.frame(request), self.dashboard.history

        async def parts() -> dict[str, str]:
            return live_texts(frame, await history.look(), history)

        return self.dashboard.streams.response(parts)

    async def events(self, request: Request) -> Response:
        given = request.query_params
        frame = self.frame(request)
        if (wanted := query.typed(given, "id")) is not None:
            return lead_to(event_address(frame, _identity(wanted)))
        types = query.typed(given, "type")
        found = await self.read(
            list_events,
            EventFilter(
                types=() if types is None else (types,),
                key=query.typed(given, "key"),
                tenant=query.typed(given, "tenant"),
                since=query.moment(given, "since"),
                until=query.moment(given, "until"),
            ),
            before=query.number(given, "before"),
            limit=self.dashboard.settings.page_size,
        )
        kept = {name: given.get(name, "") for name in _FIELDS}
        known = await self.read(event_choices)
        return page(events_page(frame, found, known, kept))

    async def event(self, request: Request) -> Response:
        wanted = _identity(request.path_params["event_id"])
        listeners = self.dashboard.outbox.listeners
        if isinstance(wanted, UUID):
            found = await self.read(show_event, event_id=wanted, listeners=listeners)
        else:
            found = await self.read(show_event, position=wanted, listeners=listeners)
        frame, drawn = self.frame(request), None
        if found.position is not None:
            tree = await self.read(causation_of, found.event_id, listeners=listeners)
            drawn = causation_panel(frame, tree)
        return page(event_page(frame, found, self.dashboard.masks, drawn))


def _identity(text: str) -> UUID | int:
    """An event's id, or its position in the log."""
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    try:
        return UUID(text)
    except ValueError as error:
        raise HTTPException(
            400, f"id: an event id, as {UUID(int=0)}, or a position in the log"
        ) from error
