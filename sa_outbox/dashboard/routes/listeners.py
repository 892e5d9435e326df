"""Listeners: all, one, and the actions on one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException

from sa_outbox.operations.overview import overview

from .. import query
from ..views.dead_letter_actions import notice
from ..views.listener_actions import listener_actions
from ..views.listeners import listener_page, listeners_page
from .reply import Answers, page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


_NOTICES: Final = {
    "paused": "Paused. Events in flight are finished, and no new ones are started.",
    "resumed": "Resumed. It continues where it stopped.",
    "rewind": "Rewound.",
    "skip": "Skipped.",
    "skip-event": "The event was skipped.",
}


class ListenerAnswers(Answers):
    async def all(self, request: Request) -> Response:
        return page(listeners_page(self.frame(request), await self.read(overview)))

    async def one(self, request: Request) -> Response:
        name = query.typed(request.query_params, "name")
        seen = await self.read(overview)
        found = next((each for each in seen.listeners if each.name == name), None)
        if found is None:
            raise HTTPException(404, "no listener of this name is registered")
        frame, did = self.frame(request), query.choice(request.query_params, "did", tuple(_NOTICES))
        said = None if did is None else notice(_NOTICES[did], "good")
        return page(listener_page(frame, found, seen, said, listener_actions(frame, found)))
