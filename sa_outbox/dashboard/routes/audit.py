"""The audit, and how long handlers take: nothing here changes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sa_outbox.operations.audit import AuditFilter, list_audit
from sa_outbox.operations.choices import audit_choices
from sa_outbox.operations.durations import handler_durations

from .. import query
from ..views.audit import audit_page
from ..views.durations import durations_page
from .reply import Answers, page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_FIELDS: Final = ("event", "action", "actor", "listener", "before")


class AuditAnswers(Answers):
    async def audit(self, request: Request) -> Response:
        given = request.query_params
        wanted = AuditFilter(
            event_id=query.event_id(given, "event"),
            action=query.typed(given, "action"),
            actor=query.typed(given, "actor"),
            listener=query.typed(given, "listener"),
        )
        found = await self.read(
            list_audit,
            wanted,
            before=query.number(given, "before"),
            limit=self.dashboard.settings.page_size,
        )
        known = await self.read(audit_choices)
        kept = {name: given.get(name, "") for name in _FIELDS}
        return page(audit_page(self.frame(request), found, known, kept))

    async def durations(self, request: Request) -> Response:
        return page(durations_page(self.frame(request), await self.read(handler_durations)))
