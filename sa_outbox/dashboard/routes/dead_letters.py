"""Dead letters: list and show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException

from sa_outbox.operations.choices import dead_letter_choices
from sa_outbox.operations.dead_letters import (
    DeadLetterFilter,
    count_dead_letters,
    group_dead_letters,
    list_dead_letters,
    show_dead_letter,
)

from .. import query
from ..views.dead_letter_actions import DONE, letter_actions, notice
from ..views.dead_letter_groups import dead_letter_groups_page
from ..views.dead_letters import (
    FILTERS,
    REASONS,
    RESOLUTIONS,
    dead_letter_page,
    dead_letters_page,
)
from .reply import Answers, page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from ..html import Markup


class DeadLetterAnswers(Answers):
    async def all(self, request: Request) -> Response:
        given = request.query_params
        wanted = filter_of(given)
        if query.choice(given, "group", ("error",)):
            return await self._by_error(request, wanted)
        found = await self.read(
            list_dead_letters,
            wanted,
            before=query.number(given, "before"),
            limit=self.dashboard.settings.page_size,
        )
        matching = await self.read(count_dead_letters, wanted)
        kept = {name: given.get(name, "") for name in (*FILTERS, "before")}
        known, said = await self.read(dead_letter_choices), describe(given)
        return page(dead_letters_page(self.frame(request), found, matching, known, kept, said))

    async def _by_error(self, request: Request, wanted: DeadLetterFilter) -> Response:
        limit = self.dashboard.settings.page_size
        found = await self.read(group_dead_letters, wanted, limit=limit)
        kept = {name: request.query_params.get(name, "") for name in FILTERS}
        known = await self.read(dead_letter_choices)
        return page(dead_letter_groups_page(self.frame(request), found, limit, known, kept))

    async def one(self, request: Request) -> Response:
        found = await self.read(show_dead_letter, number_of(request))
        frame = self.frame(request)
        said = describe(request.query_params)
        actions = letter_actions(frame, found.letter)
        return page(dead_letter_page(frame, found, self.dashboard.masks, said, actions))


def number_of(request: Request) -> int:
    number: int = request.path_params["id"]
    if number > query.MAX_POSITION:
        raise HTTPException(404)
    return number


def filter_of(given: Mapping[str, str]) -> DeadLetterFilter:
    types = query.typed(given, "type")
    resolution: Any = query.choice(given, "resolution", RESOLUTIONS)
    return DeadLetterFilter(
        listener=query.typed(given, "listener"),
        types=() if types is None else (types,),
        key=query.typed(given, "key"),
        tenant=query.typed(given, "tenant"),
        reason=query.choice(given, "reason", REASONS),
        code=query.typed(given, "code"),
        fingerprint=query.typed(given, "fingerprint"),
        since=query.moment(given, "since"),
        until=query.moment(given, "until"),
        resolution=resolution or "open",
    )


def describe(given: Mapping[str, str]) -> Markup | None:
    """A notice about what was just done, from the redirect's parameters: only our own words and
    numbers."""
    did = query.choice(given, "did", (*DONE, "edit"))
    if did is None:
        return None
    if did == "edit":
        return notice("Saved. A replay delivers what you see here.", "good")
    done, left = query.number(given, "done") or 0, query.number(given, "left") or 0
    said = f"{done:,} {DONE[did]}." if done else "Nothing was done."
    if left:
        said += (
            f" {left:,} were left unchanged: resolved meanwhile, already waiting for a listener,"
            " or of a listener that is gone."
        )
    return notice(said, "good" if done and not left else "warn")
