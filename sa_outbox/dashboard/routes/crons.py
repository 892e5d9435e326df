"""Recurring events: all of them, and running one now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from sa_outbox.operations.crons import list_crons, run_cron

from .. import query as asked
from ..guard import visit_of
from ..views.crons import PATH, confirm_cron_page, crons_page, not_ran, ran
from ..views.parts import query
from .reply import Answers, lead_to, operator_of, page

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.requests import Request
    from starlette.responses import Response

    from sa_outbox.operations.crons import CronOverview

    from ..forms import Form


class CronAnswers(Answers):
    async def all(self, request: Request) -> Response:
        frame, given = self.frame(request), request.query_params
        did = asked.choice(given, "did", ("nothing",))
        event_id = asked.event_id(given, "ran")
        said = ran(frame, event_id) if event_id else (not_ran() if did else None)
        return page(crons_page(frame, await self._crons(), said))

    async def confirm(self, request: Request) -> Response:
        """Shows what it means, changes nothing."""
        name = _name(visit_of(request).form)
        found = next((each for each in await self._crons() if each.name == name), None)
        if found is None:
            raise HTTPException(404, "there is no cron of this name")
        return page(confirm_cron_page(self.frame(request), found))

    async def run(self, request: Request) -> Response:
        form, outbox = visit_of(request).form, self.dashboard.outbox
        event_id = await self.write(
            run_cron,
            outbox.crons,
            _name(form),
            operator_of(request),
            seen=_seen(form),
            records_added=outbox.settings.audit == "all",
            channel=self.channel,
        )
        did = {"did": "nothing"} if event_id is None else {"ran": event_id}
        return lead_to(self.frame(request).url(query(PATH, did)))

    async def _crons(self) -> tuple[CronOverview, ...]:
        return await self.read(list_crons, self.dashboard.outbox.crons)


def _name(form: Form) -> str:
    name = asked.typed(form, "name")
    if name is None:
        raise HTTPException(400, "name: which cron?")
    return name


def _seen(form: Form) -> datetime:
    """When its row was written that the page showed: a double click runs it once."""
    found = asked.moment(form, "seen")
    if found is None:
        raise HTTPException(400, "seen: when was the cron changed last?")
    return found
