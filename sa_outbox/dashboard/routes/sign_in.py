"""Sign in with the token, and sign out."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException

from .. import query
from ..guard import cookie, is_plain_http, visit_of
from ..views.fault import login_page
from .reply import Answers, lead_to, page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

LONGEST_NAME: Final = 100


class SigningIn(Answers):
    async def show(self, request: Request) -> Response:
        self._token()
        return page(login_page(self.frame(request), _inside(request.query_params.get("next", ""))))

    async def sign_in(self, request: Request) -> Response:
        form, frame = visit_of(request).form, self.frame(request)
        goes_to, name = (
            _inside(form.get("next", "")),
            query.typed(form, "name", longest=LONGEST_NAME),
        )
        self._token()
        if name is None:
            raise HTTPException(400, "name: enter your name, it is recorded with what you do")
        settings = self.dashboard.settings
        if settings.secure_cookies and is_plain_http(request):
            raise HTTPException(
                400,
                "over HTTP everybody on the way could read the token: sign in over HTTPS "
                "(secure_cookies=False allows HTTP, in a network that you trust)",
            )
        try:
            self.dashboard.guard.check_token(request, form.get("token", ""))
        except HTTPException as refused:
            if refused.status_code != HTTPStatus.UNAUTHORIZED:
                raise
            return page(login_page(frame, goes_to, refused=True, name=name), 401)
        keys = self.dashboard.keys
        answer = lead_to(frame.url(goes_to))
        value = keys.cookie_of(keys.new_session("token", name))
        answer.headers.append("Set-Cookie", cookie(request, frame.visit.base, value, settings))
        return answer

    async def sign_out(self, request: Request) -> Response:
        frame, settings = self.frame(request), self.dashboard.settings
        if (session := frame.visit.session) is not None:
            self.dashboard.keys.revoke(session)
        answer = lead_to(frame.url("/login" if settings.token else "/"))
        answer.headers.append("Set-Cookie", cookie(request, frame.visit.base, "", settings))
        return answer

    def _token(self) -> str:
        token = self.dashboard.settings.token
        if token is None:
            raise HTTPException(404)
        return token


def _inside(path: str) -> str:
    """Where to continue: a page of ours, whatever a link to the login says."""
    plain = path.startswith("/") and path.isprintable() and not path.startswith(("//", "/\\"))
    return path if plain and len(path) < 500 else "/"
