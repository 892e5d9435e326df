"""Secrets by the name of an environment variable, read when they are needed.

Not when the relay is declared: programs that only add events import the same module, and need not
know the secrets.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from sa_outbox.errors import ConfigError

_TOKEN = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class Secret:
    """``Secret.env("ACME_WEBHOOK_SECRET")``."""

    name: str
    """Of the environment variable."""

    @staticmethod
    def env(name: str) -> Secret:
        """The value of an environment variable, read for the first message."""
        return Secret(name)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or "=" in self.name:
            raise ConfigError(f"the name of an environment variable, not {self.name!r}")

    def value(self) -> str:
        """Raises :class:`~sa_outbox.errors.ConfigError` if it is not set."""
        found = os.environ.get(self.name, "").strip()
        if not found:
            raise ConfigError(f"the environment variable {self.name} is not set")
        return found


def value_of(secret: str | Secret) -> str:
    return secret.value() if isinstance(secret, Secret) else secret


def check_bearer(token: str) -> str:
    """Raises :class:`~sa_outbox.errors.ConfigError` for a token that can't be a header value,
    without showing it: a client that refuses it later would quote it in its error."""
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise ConfigError(
            "a bearer token is visible ASCII without spaces or line ends; this one is not (was it"
            " read from a file, with the line end?)"
        )
    return token
