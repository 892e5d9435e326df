"""Operating a listener: pause, resume, rewind, skip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException

from sa_outbox.operations.listeners import (
    pause_listener,
    resume_listener,
    rewind_listener,
    skip_event,
    skip_listener,
)
from sa_outbox.operations.overview import overview

from .. import query as asked
from ..guard import visit_of
from ..views.listener_actions import MOVES, confirm_move_page
from ..views.parts import count, query
from .reply import Answers, lead_to, operator_of, page

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.requests import Request
    from starlette.responses import Response

    from ..forms import Form

_WORDS: Final = {"rewind": "beginning", "skip": "now"}


class SteeringAnswers(Answers):
    async def pause(self, request: Request) -> Response:
        return await self._pause(request, pause_listener, "paused")

    async def resume(self, request: Request) -> Response:
        return await self._pause(request, resume_listener, "resumed")

    async def confirm(self, request: Request) -> Response:
        """Shows what it means, changes nothing."""
        form = visit_of(request).form
        name, act, to = _name(form), _act(form), asked.typed(form, "to") or ""
        _place(act, form)
        seen = await self.read(overview)
        found = next((each for each in seen.listeners if each.name == name), None)
        if found is None:
            raise HTTPException(404, "no listener of this name is registered")
        positions = ", ".join(count(each.position) for each in found.cursors)
        last = count(seen.log.last_id or 0)
        waiting = f"It is at {positions}; the log ends at {last}."
        return page(confirm_move_page(self.frame(request), name, act, to, waiting))

    async def move(self, request: Request) -> Response:
        form = visit_of(request).form
        name, act, operator = _name(form), _act(form), operator_of(request)
        place: Any = _place(act, form)
        channel = self.channel
        if act == "rewind":
            await self.write(rewind_listener, name, operator, to=place, channel=channel)
        elif act == "skip":
            await self.write(skip_listener, name, operator, to=place, channel=channel)
        else:
            await self.write(skip_event, name, operator, position=place, channel=channel)
        return self._back(request, name, act)

    async def _pause(self, request: Request, operation: Any, did: str) -> Response:
        name = _name(visit_of(request).form)
        await self.write(operation, name, operator_of(request), channel=self.channel)
        return self._back(request, name, did)

    def _back(self, request: Request, name: str, did: str) -> Response:
        return lead_to(self.frame(request).url(query("/listener", {"name": name, "did": did})))


def _name(form: Form) -> str:
    name = asked.typed(form, "name")
    if name is None:
        raise HTTPException(400, "name: which listener?")
    return name


def _act(form: Form) -> str:
    act = asked.choice(form, "act", tuple(MOVES))
    if act is None:
        raise HTTPException(400, f"act is one of {', '.join(MOVES)}")
    return act


def _place(act: str, form: Form) -> int | str | datetime:
    """The target: a position, a time, or the word that *act* uses for its end."""
    typed = asked.typed(form, "to") or ""
    if typed == _WORDS.get(act):
        return typed
    if act == "skip-event" or typed.isdigit():
        found: int | datetime | None = asked.number(form, "to")
    else:
        found = asked.moment(form, "to")
    if found is None:
        raise HTTPException(400, "to: a position, a time, beginning or now")
    return found
