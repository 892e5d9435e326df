"""The settings of a dashboard, checked at startup."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from sa_outbox.errors import ConfigError

from .access import LEAST_SECRET
from .catalogue import Catalogue
from .mask import Masks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    catalogue: Mapping[str, Any] | None
    allowed_hosts: Sequence[str] | None
    trusted_origins: Sequence[str]
    allow_anonymous: bool
    secure_cookies: bool
    page_size: int


@dataclass(frozen=True, kw_only=True)
class DashboardSettings:
    """Closed unless configured who may access it."""

    auth: Auth | None = None
    """Called with each request; returns a :class:`Visitor`, None (refused), or its own response,
    such as a redirect to a login. Sync or async."""
    token: str | None = None
    """Makes its holder an operator: in the login form, or as ``Authorization: Bearer``."""
    secret: str | None = None
    """Signs forms and cookies; required with ``auth``, identical in every process."""
    read_only: bool = False
    """Nobody can change anything, operators included."""
    mask: Sequence[str] = ()
    """Fields of payloads and headers that are not shown: ``password``, ``card.*``."""
    title: str = "Outbox"
    """In the header of every page: distinguishes several dashboards."""
    catalogue: Mapping[str, Any] | None = None
    """A document that ``sa-outbox catalog`` has written, for a dashboard that does not know the
    program; None: of the outbox it is given."""
    allowed_hosts: Sequence[str] | None = None
    """Host names it answers to; None: any. On the loopback, the standalone dashboard answers to the
    loopback's names only, against DNS rebinding."""
    trusted_origins: Sequence[str] = ()
    """Origins whose forms are ours, such as ``https://ops.example.com``: for a proxy that changes
    ``Host``, and for browsers that do not send ``Sec-Fetch-Site``."""
    allow_anonymous: bool = False
    """Everyone who reaches it is an operator. For the loopback only: requires ``allowed_hosts``,
    and requests through a proxy are refused."""
    secure_cookies: bool = True
    """Browsers keep a session only over HTTPS, or on this machine. False: over HTTP too, where
    anyone in between can steal it."""
    page_size: int = 50
    """Rows per page."""

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
                    f"trusted_origins: {origin!r} is not an origin such as https://ops.example.com"
                )
        if type(self.page_size) is not int or not 1 <= self.page_size <= 500:
            raise ConfigError(f"page_size is a number from 1 to 500, not {self.page_size!r}")
        Masks(self.mask)
        if self.catalogue is not None:
            Catalogue(self.catalogue)

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
