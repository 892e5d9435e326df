"""Resolving dead letters: each change is one transaction, and its actual result is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio
from starlette.exceptions import HTTPException

from sa_outbox.errors import InvalidEvent
from sa_outbox.operations.dead_letters import count_dead_letters, show_dead_letter
from sa_outbox.operations.edit_check import check_edit
from sa_outbox.operations.resolution import (
    choose_dead_letters,
    discard_dead_letters,
    edit_dead_letter,
    newest_dead_letter,
    replay_dead_letters,
)

from .. import query as asked
from ..comparison import compare, shortened
from ..guard import visit_of
from ..mask import EditRefused
from ..payloads import parse, parse_edited, plain, pretty
from ..views.dead_letter_actions import DONE, compare_page, confirm_page, edit_page
from ..views.parts import query
from .dead_letters import filter_of, number_of
from .reply import Answers, lead_to, operator_of, page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection
    from starlette.requests import Request
    from starlette.responses import Response

    from sa_outbox.database.tables import Tables
    from sa_outbox.operations.dead_letters import DeadLetterDetail, DeadLetterFilter
    from sa_outbox.operations.operator import Operator
    from sa_outbox.operations.resolution import Resolved

    from ..forms import Form

_ACTS: Final = tuple(DONE)
_ALL: Final = {"replay-all": "replay", "discard-all": "discard"}
MAX_BATCHES: Final = 20
"""Batches per request; the result says what is left after that."""


class ResolvingAnswers(Answers):
    async def confirm(self, request: Request) -> Response:
        """Shows the count, changes nothing; a POST because it may carry many ids."""
        form, frame = visit_of(request).form, self.frame(request)
        act = asked.choice(form, "act", (*_ACTS, *_ALL)) or "replay"
        if act in _ALL:
            wanted = filter_of(form)
            newest = await self.read(newest_dead_letter)
            matching = await self.read(count_dead_letters, wanted)
            return page(confirm_page(frame, _ALL[act], matching, (), form, newest))
        ids = _ids(form)
        if not ids:
            raise HTTPException(400, "no dead letter was chosen")
        return page(confirm_page(frame, act, len(ids), ids, form, 0))

    async def act(self, request: Request) -> Response:
        form, frame = visit_of(request).form, self.frame(request)
        act = asked.choice(form, "act", _ACTS) or "replay"
        operator = operator_of(request)
        ids = _ids(form)
        if ids:
            done = await self._resolve(act, ids, operator)
            counts = len(done.ids), len(done.left)
        else:
            newest = asked.number(form, "newest")
            if newest is None:
                raise HTTPException(400, "which dead letters? Choose some")
            counts = await self._resolve_all(act, filter_of(form), newest, operator)
        of = f"/dead-letters/{ids[0]}" if len(ids) == 1 else "/dead-letters"
        said = {"did": act, "done": counts[0], "left": counts[1]}
        return lead_to(frame.url(query(of, said)))

    async def _resolve_all(
        self, act: str, wanted: DeadLetterFilter, newest: int, operator: Operator
    ) -> tuple[int, int]:
        """Batch by batch, each in its own transaction: a long one would block others."""
        after, done, left = None, 0, 0
        for _ in range(MAX_BATCHES):
            chosen = await self.read(choose_dead_letters, wanted, newest=newest, after=after)
            if not chosen.ids:
                break
            resolved = await self._resolve(act, chosen.ids, operator)
            after, done = chosen.last, done + len(resolved.ids)
            left += len(resolved.left)
        return done, left

    async def _resolve(self, act: str, ids: Sequence[int], operator: Operator) -> Resolved:
        if act == "replay":
            return await self.write(replay_dead_letters, ids, operator, channel=self.channel)
        resolution: Any = "fixed" if act == "fixed" else "discarded"
        return await self.write(discard_dead_letters, ids, operator, resolution=resolution)

    async def edit(self, request: Request) -> Response:
        detail = await self._editable(request)
        shown, behind = self.dashboard.masks.numbered(parse(detail.payload))
        text = pretty(shown)
        return page(edit_page(self.frame(request), detail.letter, text, masked=len(behind)))

    async def edit_again(self, request: Request) -> Response:
        detail = await self._editable(request)
        text = visit_of(request).form.get("payload", "")
        return page(edit_page(self.frame(request), detail.letter, text, masked=1))

    async def compare(self, request: Request) -> Response:
        detail, frame = await self._editable(request), self.frame(request)
        text = visit_of(request).form.get("payload", "")
        try:
            edited, stored = self._edited(detail, text)
            await anyio.to_thread.run_sync(self._check, detail, stored)
        except (EditRefused, InvalidEvent) as error:
            refused = edit_page(frame, detail.letter, text, masked=1, wrong=str(error))
            return page(refused, 400)
        before, _ = self.dashboard.masks.numbered(parse(detail.payload))
        # In a thread: a payload with many lines takes a while, and other requests must not wait.
        changes = await anyio.to_thread.run_sync(compare, pretty(before), pretty(edited))
        shown = await anyio.to_thread.run_sync(shortened, changes)
        return page(compare_page(frame, detail.letter, text, changes, shown))

    async def save(self, request: Request) -> Response:
        """Save the edit, and replay if requested: both, or neither."""
        form, detail = visit_of(request).form, await self._editable(request)
        then = asked.choice(form, "then", ("replay", "stay")) or "stay"
        _, payload = self._edited(detail, form.get("payload", ""))
        letter, edits = detail.letter.id, asked.number(form, "edits")
        operator, settings = operator_of(request), self.dashboard.outbox.settings

        def work(connection: Connection, tables: Tables) -> Resolved | None:
            edit_dead_letter(
                connection,
                tables,
                letter,
                operator,
                edits=-1 if edits is None else edits,
                payload=payload,
                limits=settings.limits,
                admission=settings.admission,
            )
            if then == "stay":
                return None
            return replay_dead_letters(connection, tables, [letter], operator, channel=self.channel)

        done = await self.write(work)
        said = {"did": "edit"} if done is None else {
            "did": "replay", "done": len(done.ids), "left": len(done.left)}  # fmt: skip
        return lead_to(self.frame(request).url(query(f"/dead-letters/{letter}", said)))

    def _edited(self, detail: DeadLetterDetail, text: str) -> tuple[Any, Any]:
        """The edit as shown, and as it will be stored. Raises :class:`EditRefused`."""
        edited = parse_edited(text)
        _, behind = self.dashboard.masks.numbered(parse(detail.payload))
        return edited, plain(self.dashboard.masks.restored(edited, behind))

    def _check(self, detail: DeadLetterDetail, payload: object) -> None:
        """Before it is shown: raises :class:`InvalidEvent` for what the program refuses."""
        admission = self.dashboard.outbox.settings.admission
        if admission is not None:
            check_edit(admission, detail, payload)

    async def _editable(self, request: Request) -> DeadLetterDetail:
        if not visit_of(request).may_change:
            raise HTTPException(403, "only an operator can edit a dead letter")
        detail = await self.read(show_dead_letter, number_of(request))
        if detail.letter.resolution is not None:
            raise HTTPException(409, f"it was {detail.letter.resolution} already")
        return detail


def _ids(form: Form) -> list[int]:
    found = [asked.number({"id": each}, "id") for each in form.all("id")]
    return sorted({each for each in found if each is not None})
