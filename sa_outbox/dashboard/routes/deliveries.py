"""Deliveries: what waits and what runs, retry now and cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException

from sa_outbox.errors import ConfigError
from sa_outbox.operations.claims import list_claimed
from sa_outbox.operations.deliveries import (
    STATES,
    DeliveryFilter,
    DeliveryId,
    delivery_choices,
    list_deliveries,
    list_held,
    list_work,
)
from sa_outbox.operations.delivery_change import (
    OUTCOMES,
    cancel_deliveries,
    retry_deliveries,
    retry_matching,
)

from .. import query as asked
from ..guard import visit_of
from ..views.deliveries import FILTERS, PATH, Seen, deliveries_page
from ..views.delivery_actions import ACTS, confirm_deliveries_page, counts_of, said_of
from ..views.parts import query
from .reply import Answers, lead_to, operator_of, page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection
    from starlette.requests import Request
    from starlette.responses import Response

    from sa_outbox.database.tables import Tables
    from sa_outbox.operations.delivery_change import Outcome
    from sa_outbox.operations.operator import Operator

    from ..forms import Form

MAX_BATCHES: Final = 20
"""Batches of one request that retries all: the list then shows what is left."""
_ALL: Final = "retry-all"


class DeliveryAnswers(Answers):
    async def all(self, request: Request) -> Response:
        given = request.query_params
        wanted, after = filter_of(given), _after(given)
        limit = self.dashboard.settings.page_size

        def look(connection: Connection, tables: Tables) -> Seen:
            return Seen(
                page=list_deliveries(connection, tables, wanted, after=after, limit=limit),
                held=list_held(connection, tables),
                work=list_work(connection, tables),
                ranges=list_claimed(connection, tables),
                choices=delivery_choices(connection, tables, wanted.listener),
            )

        kept = {name: given.get(name, "") for name in (*FILTERS, "after")}
        counts: dict[Outcome, int] = {
            each: asked.number(given, each) or 0 for each in OUTCOMES if given.get(each)
        }
        seen = await self.read(look)
        return page(deliveries_page(self.frame(request), seen, kept, said_of(counts)))

    async def confirm(self, request: Request) -> Response:
        """Shows what is meant, changes nothing; a POST because it may carry many ids."""
        form, frame = visit_of(request).form, self.frame(request)
        act = asked.choice(form, "act", (*ACTS, _ALL)) or "retry"
        if act == _ALL:
            filter_of(form)
            return page(confirm_deliveries_page(frame, "retry", (), form))
        return page(confirm_deliveries_page(frame, act, _ids(form), form))

    async def act(self, request: Request) -> Response:
        form, operator = visit_of(request).form, operator_of(request)
        act = asked.choice(form, "act", (*ACTS, _ALL)) or "retry"
        if act == _ALL:
            outcomes = await self._retry_all(filter_of(form), operator)
        elif act == "retry":
            done = await self.write(retry_deliveries, _ids(form), operator, channel=self.channel)
            outcomes = counts_of(done.values())
        else:
            done = await self.write(
                cancel_deliveries,
                _ids(form),
                operator,
                listeners=self.dashboard.outbox.listeners,
                channel=self.channel,
            )
            outcomes = counts_of(done.values())
        kept = {name: form.get(name, "") for name in FILTERS}
        return lead_to(self.frame(request).url(query(PATH, {**kept, **outcomes})))

    async def _retry_all(self, wanted: DeliveryFilter, operator: Operator) -> dict[str, int]:
        """Batch by batch, each in its own transaction: a long one would block others."""
        outcomes: list[str] = []
        after: DeliveryId | None = None
        for _ in range(MAX_BATCHES):
            done = await self.write(
                retry_matching, wanted, operator, after=after, channel=self.channel
            )
            outcomes += done.outcomes.values()
            after = done.next_after
            if after is None:
                break
        return counts_of(outcomes)


def filter_of(given: Mapping[str, str]) -> DeliveryFilter:
    state: Any = asked.choice(given, "state", STATES)
    return DeliveryFilter(
        listener=asked.typed(given, "listener"),
        state=state,
        event_type=asked.typed(given, "type"),
        tenant=asked.typed(given, "tenant"),
        key=asked.typed(given, "key"),
    )


def _after(given: Mapping[str, str]) -> DeliveryId | None:
    text = asked.typed(given, "after")
    return None if text is None else _id(text)


def _ids(form: Form) -> list[DeliveryId]:
    found = [_id(each) for each in form.all("id")]
    if not found:
        raise HTTPException(400, "no delivery was chosen")
    return sorted(set(found))


def _id(text: str) -> DeliveryId:
    try:
        return DeliveryId.parse(text)
    except ConfigError as error:
        raise HTTPException(400, str(error)) from error
