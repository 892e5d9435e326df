"""Webhook endpoints: all, one, enable and disable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException

from sa_outbox.operations.endpoint_view import view_endpoints
from sa_outbox.operations.endpoints import disable_endpoint, enable_endpoint
from sa_outbox.operations.overview import overview

from .. import query as asked
from ..guard import visit_of
from ..views.dead_letter_actions import notice
from ..views.endpoints import endpoint_page, endpoints_page
from ..views.parts import query
from .reply import Answers, lead_to, operator_of, page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_NOTICES: Final = {
    "disabled": "Disabled. Consumers notice within seconds, and send nothing more to it.",
    "enabled": "Enabled. Consumers notice within seconds, and continue where it left off.",
    "unchanged": "Nothing was changed: somebody was faster.",
}


class EndpointAnswers(Answers):
    async def all(self, request: Request) -> Response:
        found, seen = await self.read(view_endpoints), await self.read(overview)
        return page(endpoints_page(self.frame(request), found, seen))

    async def one(self, request: Request) -> Response:
        given = request.query_params
        found = await self.read(view_endpoints, asked.typed(given, "name") or "")
        if not found:
            raise HTTPException(404, "there is no endpoint of this name")
        did = asked.choice(given, "did", tuple(_NOTICES))
        said = None
        if did is not None:
            said = notice(_NOTICES[did], "warn" if did == "unchanged" else "good")
        seen = await self.read(overview)
        return page(endpoint_page(self.frame(request), found[0], seen, said))

    async def disable(self, request: Request) -> Response:
        return await self._change(request, disable_endpoint, "disabled")

    async def enable(self, request: Request) -> Response:
        return await self._change(request, enable_endpoint, "enabled")

    async def _change(self, request: Request, operation: Any, did: str) -> Response:
        name = asked.typed(visit_of(request).form, "name")
        if name is None:
            raise HTTPException(400, "name: which endpoint?")
        operator = operator_of(request)
        changed = await self.write(operation, name, operator, channel=self.channel)
        said = {"name": name, "did": did if changed else "unchanged"}
        return lead_to(self.frame(request).url(query("/endpoint", said)))
