"""Who a request is from, and that it was meant: tokens, signed cookies, forms that are ours.

A session is a number that nobody can guess, signed. For a token it stands for the token (the
cookie never holds it); where the program itself knows its people, it says nothing about who it
is and only binds forms to a browser. The keys come from the token or the secret, so that every
process of a server understands the others' cookies, and a changed token ends every session.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from sa_outbox.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

Role: TypeAlias = Literal["viewer", "operator"]
COOKIE: Final = "sa_outbox_session"
SESSION_SECONDS: Final = 12 * 3600
LEAST_SECRET: Final = 16
"""Characters. Shorter ones are guessed."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who may see the dashboard; an operator may also change something.

    The name is recorded with what is replayed, discarded, edited, paused or moved.
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
    """Who signed in with the token, as they said."""


class Keys:
    """Signs and checks. Comparisons take the same time whatever is wrong."""

    def __init__(self, secret: str, clock: Callable[[], float] = time.time) -> None:
        self._key = hashlib.sha256(b"sa_outbox dashboard\0" + secret.encode()).digest()
        self._clock = clock

    def new_session(self, kind: Kind, name: str = "") -> Session:
        return Session(kind, secrets.token_urlsafe(24), name)

    def cookie_of(self, session: Session) -> str:
        until = int(self._clock()) + SESSION_SECONDS
        name = session.name.encode().hex()  # a cookie holds ASCII
        said = f"{session.kind}.{session.number}.{until}.{name}"
        return f"{said}.{self._signature('session', said)}"

    def session_of(self, cookie: str | None, kind: Kind) -> Session | None:
        """What a cookie of ours says, if it is one and has not ended."""
        said, _, signature = (cookie or "").rpartition(".")
        if not _same(self._signature("session", said), signature):
            return None
        found, number, until, name = said.split(".")
        if found != kind or int(until) < self._clock():
            return None
        return Session(kind, number, bytes.fromhex(name).decode())

    def form_token(self, session: Session, visitor: Visitor) -> str:
        """For the forms of this session and this person: nobody else can post them."""
        return self._signature("form", f"{session.kind}.{session.number}.{visitor.name}")

    def is_form_token(self, given: str, session: Session, visitor: Visitor) -> bool:
        return _same(self.form_token(session, visitor), given)

    def _signature(self, purpose: str, said: str) -> str:
        text = f"{purpose}\0{said}".encode("utf-8", "surrogatepass")
        return hmac.new(self._key, text, hashlib.sha256).hexdigest()


def is_token(given: str, token: str) -> bool:
    return _same(token, given)


def bearer_of(header: str | None) -> str | None:
    """The token of an ``Authorization`` header."""
    scheme, _, given = (header or "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else None


def _same(right: str, given: str) -> bool:
    """In a time that tells nothing. A header may hold what is no text at all."""
    return hmac.compare_digest(right.encode(), given.encode("utf-8", "surrogatepass"))
