"""Who sent a request, and whether it was intended: tokens, signed cookies, our own forms.

A session is an unguessable signed number. With a token, it stands for the token (the cookie never
contains it). Where the program itself authenticates people, it says nothing about who they are and
only binds forms to a browser. The keys are derived from the token or the secret, so that every
process of a server accepts the others' cookies, and a changed token ends every session. A session
that was signed out is refused by the process that handled it, until the process ends.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from itsdangerous import BadData, Signer, URLSafeSerializer

from sa_outbox.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

Role: TypeAlias = Literal["viewer", "operator"]
COOKIE: Final = "sa_outbox_session"
SESSION_SECONDS: Final = 12 * 3600
LEAST_SECRET: Final = 16
"""Minimum length in characters. Shorter ones can be guessed."""
MAX_GUESSES: Final = 10
"""Wrong tokens that one address may send within ``GUESS_SECONDS``."""
GUESS_SECONDS: Final = 60.0
MAX_ADDRESSES: Final = 10_000
"""How many addresses are remembered."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Someone who may see the dashboard; an operator may also make changes.

    The name is recorded with whatever is replayed, discarded, edited, paused or moved.
    """

    name: str
    role: Role = "viewer"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise ConfigError("a visitor of the dashboard has a name: it is recorded")
        if self.role not in get_args(Role):
            raise ConfigError(f'a visitor is a "viewer" or an "operator", not {self.role!r}')


if TYPE_CHECKING:
    Answer: TypeAlias = Visitor | Response | None
    Auth: TypeAlias = Callable[[Request], Answer | Awaitable[Answer]]

Kind: TypeAlias = Literal["token", "forms"]


@dataclass(frozen=True, slots=True)
class Session:
    kind: Kind
    number: str
    name: str = ""
    """The name given when signing in with the token."""


class _Signer(Signer):
    default_key_derivation = "hmac"
    default_digest_method = staticmethod(hashlib.sha256)


class Keys:
    """Signs and checks, by itsdangerous. Comparisons take the same time whatever is wrong."""

    def __init__(self, secret: str, clock: Callable[[], float] = time.time) -> None:
        self._cookies = URLSafeSerializer(
            secret, salt="sa_outbox dashboard session", signer=_Signer
        )
        self._forms = _Signer(secret, salt="sa_outbox dashboard form")
        self._clock = clock
        self._revoked: dict[str, float] = {}
        """Sessions that were signed out, and when they would have expired."""

    def new_session(self, kind: Kind, name: str = "") -> Session:
        return Session(kind, secrets.token_urlsafe(24), name)

    def cookie_of(self, session: Session) -> str:
        until = int(self._clock()) + SESSION_SECONDS
        return self._cookies.dumps([session.kind, session.number, session.name, until])

    def session_of(self, cookie: str | None, kind: Kind) -> Session | None:
        """The session of a cookie, if we signed it and it has not expired."""
        try:
            found, number, name, until = self._cookies.loads(cookie or "")
        except (BadData, UnicodeError):  # the latter: a header may not be text at all
            return None
        if found != kind or until < self._clock() or number in self._revoked:
            return None
        return Session(kind, number, name)

    def revoke(self, session: Session) -> None:
        """Stop accepting its cookie."""
        now = self._clock()
        self._revoked = {number: end for number, end in self._revoked.items() if end >= now}
        self._revoked[session.number] = now + SESSION_SECONDS

    def form_token(self, session: Session, visitor: Visitor) -> str:
        """For the forms of this session and this person: nobody else can post them."""
        return self._forms.get_signature(_whose(session, visitor)).decode()

    def is_form_token(self, given: str, session: Session, visitor: Visitor) -> bool:
        return self._forms.verify_signature(_whose(session, visitor), given)


def _whose(session: Session, visitor: Visitor) -> bytes:
    whose = f"{session.kind}.{session.number}.{visitor.name}"
    return whose.encode("utf-8", "surrogatepass")


class Guesses:
    """Wrong tokens per address: after too many, the address has to wait.

    A token is too long to be guessed. This keeps the attempts from disturbing others, and the log
    readable. Behind a proxy everyone has the same address, so signed-in visitors never have to
    wait.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong: dict[str, list[float]] = {}

    def wait(self, address: str) -> int:
        """Seconds until *address* may try again; 0: now."""
        now = self._clock()
        recent = [at for at in self._wrong.get(address, ()) if at > now - GUESS_SECONDS]
        if len(recent) < MAX_GUESSES:
            return 0
        return max(1, int(recent[-MAX_GUESSES] + GUESS_SECONDS - now) + 1)

    def was_wrong(self, address: str) -> None:
        now = self._clock()
        if len(self._wrong) >= MAX_ADDRESSES:
            since = now - GUESS_SECONDS
            kept = {who: times for who, times in self._wrong.items() if times[-1] > since}
            self._wrong = kept if len(kept) < MAX_ADDRESSES else {}
        self._wrong[address] = [*self._wrong.get(address, ())[-MAX_GUESSES:], now]


def is_token(given: str, token: str) -> bool:
    """Whether *given* is the token, compared in constant time."""
    return hmac.compare_digest(token.encode(), given.encode("utf-8", "surrogatepass"))


def bearer_of(header: str | None) -> str | None:
    """The token of an ``Authorization`` header."""
    scheme, _, given = (header or "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else None
