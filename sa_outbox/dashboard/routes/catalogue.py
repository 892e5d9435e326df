"""The catalogue: all event types, and one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
from starlette.exceptions import HTTPException

from sa_outbox.catalog import asyncapi
from sa_outbox.errors import ConfigError

from .. import query as asked
from ..catalogue import Catalogue
from ..views.catalogue import catalogue_page, event_type_page, unreadable_page
from .reply import Answers, page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


class CatalogueAnswers(Answers):
    async def all(self, request: Request) -> Response:
        frame = self.frame(request)
        try:
            found = await self._catalogue()
        except ConfigError as error:
            return page(unreadable_page(frame, str(error)))
        return page(catalogue_page(frame, found, committed=self._is_committed))

    async def one(self, request: Request) -> Response:
        frame = self.frame(request)
        name = asked.typed(request.query_params, "name") or ""
        try:
            found = await self._catalogue()
        except ConfigError as error:
            return page(unreadable_page(frame, str(error)))
        if found.type_of(name) is None:
            raise HTTPException(404, "the catalogue has no event type of this name")
        return page(event_type_page(frame, found, name))

    @property
    def _is_committed(self) -> bool:
        return self.dashboard.settings.catalogue is not None

    async def _catalogue(self) -> Catalogue:
        """From the file, if there is one; otherwise of the program, as it is now."""
        committed = self.dashboard.settings.catalogue
        if committed is not None:
            return Catalogue(committed)
        # In a thread: with hundreds of classes it takes a while, and other requests must not wait.
        return Catalogue(await anyio.to_thread.run_sync(asyncapi, self.dashboard.outbox))
