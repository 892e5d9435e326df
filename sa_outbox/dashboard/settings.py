"""What a dashboard is told, checked when the program is put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from sa_outbox.errors import ConfigError

from .access import LEAST_SECRET
from .masking import Masks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .access import Auth

_EXAMPLE = 'python -c "import secrets; print(secrets.token_urlsafe())"'


class DashboardOptions(TypedDict, total=False):
    """The arguments of ``Outbox.dashboard``: the fields of :class:`DashboardSettings`."""

    auth: Auth | None
    token: str | None
    secret: str | None
    read_only: bool
    mask: Sequence[str]
    title: str
    allowed_hosts: Sequence[str] | None
    trusted_origins: Sequence[str]
    allow_anonymous: bool
    page_size: int


@dataclass(frozen=True, kw_only=True)
class DashboardSettings:
    """Closed unless it is told who may come in."""

    auth: Auth | None = None
    """Called with each request; answers with a :class:`Visitor`, with None (refused), or with a
    response of its own, as a redirect to a login. Sync or async."""
    token: str | None = None
    """Who has it is an operator: by the login form, or as ``Authorization: Bearer``."""
    secret: str | None = None
    """What signs forms and cookies; needed with ``auth``, the same in every process."""
    read_only: bool = False
    """Nobody changes anything, operators included."""
    mask: Sequence[str] = ()
    """Fields of payloads and headers that are not shown: ``password``, ``card.*``."""
    title: str = "Outbox"
    """In the head of every page: which one of several this is."""
    allowed_hosts: Sequence[str] | None = None
    """Names under which it answers; None: any. The stand-alone one on the loopback answers to
    the loopback's names alone, against DNS rebinding."""
    trusted_origins: Sequence[str] = ()
    """Origins whose forms are ours, as ``https://ops.example.com``, behind a proxy that changes
    ``Host`` and for browsers that do not send ``Sec-Fetch-Site``."""
    allow_anonymous: bool = False
    """Everybody who reaches it is an operator. For the loopback alone: needs ``allowed_hosts``."""
    page_size: int = 50
    """Rows of a page."""

    def __post_init__(self) -> None:
        ways = [self.auth is not None, self.token is not None, self.allow_anonymous]
        if sum(ways) != 1:
            raise ConfigError(
                "who may see the dashboard? Give one of auth=, a function that answers with a "
                f"Visitor, and token=, a long random text: {_EXAMPLE}"
            )
        self._check_secrets()
        if self.allow_anonymous and not self.allowed_hosts:
            raise ConfigError("allow_anonymous needs allowed_hosts: the loopback's names")
        for origin in self.trusted_origins:
            if not origin.startswith(("http://", "https://")) or origin.count("/") != 2:
                raise ConfigError(
                    f"trusted_origins: {origin!r} is no origin, as https://ops.example.com"
                )
        if type(self.page_size) is not int or not 1 <= self.page_size <= 500:
            raise ConfigError(f"page_size is a number from 1 to 500, not {self.page_size!r}")
        Masks(self.mask)

    def _check_secrets(self) -> None:
        if self.auth is not None and self.secret is None:
            raise ConfigError(
                "auth= needs secret=, a long random text that is the same in every process and "
                f"signs the forms: {_EXAMPLE}"
            )
        for name, value in (("token", self.token), ("secret", self.secret)):
            if value is not None and (not isinstance(value, str) or len(value) < LEAST_SECRET):
                raise ConfigError(
                    f"{name} must have at least {LEAST_SECRET} characters: {_EXAMPLE}"
                )
