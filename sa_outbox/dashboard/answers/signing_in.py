"""In by the token, and out."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException

from .. import asked
from ..access import is_token
from ..guard import cookie, visit_of
from ..views.fault import login_page
from .answering import Answers, lead_to, page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_LOG: Final = logging.getLogger(__name__)
LONGEST_NAME: Final = 100


class SigningIn(Answers):
    async def show(self, request: Request) -> Response:
        self._token()
        return page(login_page(self.frame(request), _inside(request.query_params.get("next", ""))))

    async def sign_in(self, request: Request) -> Response:
        form, frame = visit_of(request).form, self.frame(request)
        goes_to, name = (
            _inside(form.get("next", "")),
            asked.typed(form, "name", longest=LONGEST_NAME),
        )
        if name is None:
            raise HTTPException(400, "name: say who you are, it is recorded with what you do")
        if not is_token(form.get("token", ""), self._token()):
            client = request.client.host if request.client else "?"
            _LOG.warning("a wrong token was given, from %s", client)
            return page(login_page(frame, goes_to, refused=True, name=name), 401)
        keys = self.dashboard.keys
        answer = lead_to(frame.url(goes_to))
        value = keys.cookie_of(keys.new_session("token", name))
        answer.headers.append("Set-Cookie", cookie(request, frame.visit.base, value))
        return answer

    async def sign_out(self, request: Request) -> Response:
        frame = self.frame(request)
        answer = lead_to(frame.url("/login" if self.dashboard.settings.token else "/"))
        answer.headers.append("Set-Cookie", cookie(request, frame.visit.base, ""))
        return answer

    def _token(self) -> str:
        token = self.dashboard.settings.token
        if token is None:
            raise HTTPException(404)
        return token


def _inside(path: str) -> str:
    """Where to go on to: a page here, whatever a link to the login said."""
    plain = path.startswith("/") and path.isprintable() and not path.startswith(("//", "/\\"))
    return path if plain and len(path) < 500 else "/"
