"""Before any page: which host, who, from where, and are they allowed. Also the headers of every
response.

The order matters: nobody learns anything before they are authenticated, and no form is read from
someone who may not post it. The result is a :class:`Visit`, which pages use.
"""

from __future__ import annotations

import inspect
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from .access import COOKIE, SESSION_SECONDS, Guesses, Session, Visitor, bearer_of, is_token
from .forms import FORM_TOKEN, Form, read_form

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from .access import Keys
    from .settings import DashboardSettings

VISIT: Final = "sa_outbox.visit"
LOGIN_BYTES: Final = 4_096
"""Maximum size of the sign-in form, which anyone may send."""
LOOPBACK_NAMES: Final = ("127.0.0.1", "::1", "localhost")
_FORWARDED: Final = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
_LOG: Final = logging.getLogger(__name__)
LOGIN, LOGOUT, STATIC = "/login", "/logout", "/static/"
ANONYMOUS: Final = Visitor("operator", "operator")
_POLICY: Final = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
# Not no-referrer: with it a browser sends "Origin: null" for our own forms.
HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True, slots=True)
class Visit:
    """A request that was admitted."""

    base: str
    """Where the dashboard is mounted, without a trailing slash."""
    visitor: Visitor | None = None
    form_token: str = ""
    may_change: bool = False
    session: Session | None = None
    form: Form = field(default_factory=lambda: Form([]))

    @property
    def can_sign_out(self) -> bool:
        return self.session is not None and self.session.kind == "token"


def visit_of(request: Request) -> Visit:
    visit: Visit = request.scope[VISIT]
    return visit


class Guard:
    """ASGI: passes requests on to *app*, or refuses them by raising."""

    def __init__(
        self, app: ASGIApp, *, settings: DashboardSettings, keys: Keys, most_bytes: int
    ) -> None:
        self._app, self._settings, self._keys = app, settings, keys
        self._most_bytes = most_bytes
        self.guesses: Guesses = Guesses()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        base = scope.get("root_path", "").rstrip("/")
        scope[VISIT] = Visit(base)  # for a page that says why not
        path = path_inside(scope)
        self._check_host(request)
        self._check_method(request, path)
        if not path.startswith(STATIC):
            answer = await self._let_in(request, path, base)
            if isinstance(answer, Response):
                await answer(scope, receive, send)
                return
            if answer is not None:
                value = self._keys.cookie_of(answer)
                send = _with_cookie(send, cookie(request, base, value, self._settings))
        await self._app(scope, receive, send)

    async def _let_in(self, request: Request, path: str, base: str) -> Response | Session | None:
        """Refuse by raising; or return a response to send instead of the page; or a session to
        keep."""
        if request.method == "POST":
            self._check_origin(request)
        if path == LOGIN and self._settings.token is not None:
            form = await self._read_form(request, LOGIN_BYTES)
            request.scope[VISIT] = Visit(base, form=form)
            return None
        known = await self._identify(request, path, base)
        if isinstance(known, Response):
            return known
        visitor, session, is_new = known
        token = "" if session is None else self._keys.form_token(session, visitor)
        may_change = visitor.role == "operator" and not self._settings.read_only
        if request.method == "POST" and path != LOGOUT and not may_change:
            raise HTTPException(403, self._why_not(visitor))
        form = await self._read_form(request)
        if request.method == "POST" and session is not None:
            given = form.get(FORM_TOKEN, "")
            if is_new or not self._keys.is_form_token(given, session, visitor):
                raise HTTPException(403, "this form belongs to another session: reload the page")
        request.scope[VISIT] = Visit(base, visitor, token, may_change, session, form)
        return session if is_new else None

    async def _identify(
        self, request: Request, path: str, base: str
    ) -> Response | tuple[Visitor, Session | None, bool]:
        """The visitor, their session (None: they authenticate in each request), and whether it is
        new."""
        settings, given = self._settings, request.cookies.get(COOKIE)
        if settings.token is not None:
            bearer = bearer_of(request.headers.get("authorization"))
            if bearer is not None:
                self.check_token(request, bearer)
                return Visitor("token", "operator"), None, False
            session = self._keys.session_of(given, "token")
            if session is not None:
                return Visitor(session.name, "operator"), session, False
            if request.method == "GET" and "text/html" in _accepted(request):
                return RedirectResponse(f"{base}{LOGIN}?next={quote(path, safe='/')}", 303)
            raise HTTPException(401, "sign in first", {"WWW-Authenticate": "Bearer"})
        if settings.auth is not None:
            answer = settings.auth(request)
            found = await answer if inspect.isawaitable(answer) else answer
        else:
            _check_direct(request)
            found = ANONYMOUS
        if isinstance(found, Response):
            return found
        if not isinstance(found, Visitor):
            raise HTTPException(401, "you have no access to this dashboard")
        session = self._keys.session_of(given, "forms")
        return found, session or self._keys.new_session("forms"), session is None

    def check_token(self, request: Request, given: str) -> None:
        """Raises unless *given* is the token; after too many failures it is not even checked."""
        address = request.client.host if request.client else "?"
        if wait := self.guesses.wait(address):
            raise HTTPException(
                429, f"too many wrong tokens: try again in {wait} s", {"Retry-After": str(wait)}
            )
        if not is_token(given, self._settings.token or ""):
            self.guesses.was_wrong(address)
            _LOG.warning("a wrong token was given, from %s", address)
            raise HTTPException(401, "that is not the token", {"WWW-Authenticate": "Bearer"})

    async def _read_form(self, request: Request, most_bytes: int | None = None) -> Form:
        if request.method != "POST":
            return Form([])
        return await read_form(request, most_bytes or self._most_bytes)

    def _why_not(self, visitor: Visitor) -> str:
        if self._settings.read_only:
            return "this dashboard is read-only: nothing can be changed here"
        return f"{visitor.name} is a viewer; only an operator can change something"

    def _check_host(self, request: Request) -> None:
        if self._settings.allowed_hosts is None:
            return
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname
        if host not in {each.strip("[]").lower() for each in self._settings.allowed_hosts}:
            raise HTTPException(421, "this dashboard does not answer to that host name")

    def _check_method(self, request: Request, path: str) -> None:
        if request.method not in {"GET", "HEAD", "POST"} or (
            request.method == "POST" and path.startswith(STATIC)
        ):
            raise HTTPException(
                405, "only GET and POST are supported", {"Allow": "GET, HEAD, POST"}
            )

    def _check_origin(self, request: Request) -> None:
        """Check that the form is ours, as far as the browser reports it. A client that reports
        nothing is not a browser, or an old one: then only the form token decides."""
        site = request.headers.get("sec-fetch-site")
        origin = request.headers.get("origin")
        if origin is not None and origin in self._settings.trusted_origins:
            return
        if site is not None:
            ours = site == "same-origin"
        elif origin is not None:
            ours = urlsplit(origin).netloc == request.headers.get("host")
        else:
            ours = True
        if not ours:
            raise HTTPException(403, "this form was sent from another site")


def path_inside(scope: Scope) -> str:
    """The path below the mount point, as Starlette's routes see it."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    inside = path.removeprefix(root)
    return inside if not inside or inside.startswith("/") else path


class Headers:
    """ASGI: the headers of every response, errors included."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)


def _check_direct(request: Request) -> None:
    """Everyone on this machine is let in; a proxy would extend that to everyone it serves."""
    if any(name in request.headers for name in _FORWARDED):
        raise HTTPException(
            403,
            "this request came through a proxy, and this dashboard has no token: it is for this "
            "machine alone. Set SA_OUTBOX_DASHBOARD_TOKEN to serve it to others",
        )


def is_plain_http(request: Request) -> bool:
    """Whether the connection is plain HTTP, judging by the origin of the browser's form."""
    return request.headers.get("origin", "").startswith("http://") and not _is_local(request)


def _is_local(request: Request) -> bool:
    return urlsplit(f"//{request.headers.get('host', '')}").hostname in LOOPBACK_NAMES


def cookie(request: Request, base: str, value: str, settings: DashboardSettings) -> str:
    """A ``Set-Cookie`` that no script can read and no other site can send; empty *value*: delete
    it.

    Secure, however the request reached us: a proxy may terminate TLS without telling us. Not on the
    loopback, where some browsers would not keep it.
    """
    age = SESSION_SECONDS if value else 0
    is_secure = request.url.scheme == "https" or (
        settings.secure_cookies and not _is_local(request)
    )
    secure = "; Secure" if is_secure else ""
    path = quote(base, safe="/") or "/"
    return f"{COOKIE}={value}; Max-Age={age}; Path={path}; HttpOnly; SameSite=Strict{secure}"


def _with_cookie(send: Send, value: str) -> Send:
    async def send_with_cookie(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).append("Set-Cookie", value)
        await send(message)

    return send_with_cookie


def _accepted(request: Request) -> str:
    return request.headers.get("accept", "")
