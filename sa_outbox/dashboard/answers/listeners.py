"""Listeners: all, one, and what can be done to one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException

from sa_outbox.operations.overview import overview

from .. import asked
from ..views.listeners import listener_page, listeners_page
from ..views.resolving import notice
from ..views.steering import listener_actions
from .answering import Answers, page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


_TOLD: Final = {
    "paused": "Paused. What is in hand is finished, and nothing new is taken.",
    "resumed": "Resumed. It goes on where it stopped.",
    "rewind": "Rewound.",
    "skip": "Skipped.",
    "skip-event": "The event was skipped.",
}


class ListenerAnswers(Answers):
    async def all(self, request: Request) -> Response:
        return page(listeners_page(self.frame(request), await self.read(overview)))

    async def one(self, request: Request) -> Response:
        name = asked.typed(request.query_params, "name")
        seen = await self.read(overview)
        found = next((each for each in seen.listeners if each.name == name), None)
        if found is None:
            raise HTTPException(404, "no listener of this name is registered")
        frame, did = self.frame(request), asked.choice(request.query_params, "did", tuple(_TOLD))
        said = None if did is None else notice(_TOLD[did], "good")
        return page(listener_page(frame, found, seen, said, listener_actions(frame, found)))
