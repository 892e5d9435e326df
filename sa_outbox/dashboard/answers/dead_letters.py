"""Dead letters: seeing them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException

from sa_outbox.operations.dead_letters import (
    DeadLetterFilter,
    count_dead_letters,
    list_dead_letters,
    show_dead_letter,
)

from .. import asked
from ..views.dead_letters import (
    FILTERS,
    REASONS,
    RESOLUTIONS,
    dead_letter_page,
    dead_letters_page,
)
from ..views.resolving import DONE, letter_actions, notice
from .answering import Answers, page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from ..html import Markup


class DeadLetterAnswers(Answers):
    async def all(self, request: Request) -> Response:
        given = request.query_params
        wanted = filter_of(given)
        found = await self.read(
            list_dead_letters,
            wanted,
            before=asked.number(given, "before"),
            limit=self.dashboard.settings.page_size,
        )
        matching = await self.read(count_dead_letters, wanted)
        kept = {name: given.get(name, "") for name in (*FILTERS, "before")}
        return page(dead_letters_page(self.frame(request), found, matching, kept, told(given)))

    async def one(self, request: Request) -> Response:
        found = await self.read(show_dead_letter, number_of(request))
        frame = self.frame(request)
        said = told(request.query_params)
        actions = letter_actions(frame, found.letter)
        return page(dead_letter_page(frame, found, self.dashboard.masks, said, actions))


def number_of(request: Request) -> int:
    number: int = request.path_params["id"]
    if number > asked.MOST_POSITION:
        raise HTTPException(404)
    return number


def filter_of(given: Mapping[str, str]) -> DeadLetterFilter:
    types = asked.typed(given, "type")
    resolution: Any = asked.choice(given, "resolution", RESOLUTIONS)
    return DeadLetterFilter(
        listener=asked.typed(given, "listener"),
        types=() if types is None else (types,),
        key=asked.typed(given, "key"),
        tenant=asked.typed(given, "tenant"),
        reason=asked.choice(given, "reason", REASONS),
        code=asked.typed(given, "code"),
        since=asked.moment(given, "since"),
        until=asked.moment(given, "until"),
        resolution=resolution or "open",
    )


def told(given: Mapping[str, str]) -> Markup | None:
    """What was just done, as the address that it led to says: figures and words of ours."""
    did = asked.choice(given, "did", (*DONE, "edit"))
    if did is None:
        return None
    if did == "edit":
        return notice("Saved. A replay delivers what you see here.", "good")
    done, left = asked.number(given, "done") or 0, asked.number(given, "left") or 0
    said = f"{done:,} {DONE[did]}." if done else "Nothing was done."
    if left:
        said += (
            f" {left:,} left as they are: resolved meanwhile, waiting for their listener already,"
            " or of a listener that is gone."
        )
    return notice(said, "good" if done and not left else "warn")
