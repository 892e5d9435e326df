"""Secrets by the name of an environment variable, read when they are needed.

Not when the relay is declared: the programs that only add events import the same module, and need
not know them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from sa_outbox.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Secret:
    """``Secret.env("ACME_WEBHOOK_SECRET")``."""

    name: str
    """Of the environment variable."""

    @staticmethod
    def env(name: str) -> Secret:
        """The value of an environment variable, at the time of the first message."""
        return Secret(name)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or "=" in self.name:
            raise ConfigError(f"the name of an environment variable, not {self.name!r}")

    def value(self) -> str:
        """Raises :class:`~sa_outbox.errors.ConfigError` if there is none."""
        found = os.environ.get(self.name, "").strip()
        if not found:
            raise ConfigError(f"the environment variable {self.name} is not set")
        return found


def value_of(secret: str | Secret) -> str:
    return secret.value() if isinstance(secret, Secret) else secret
