"""What the environment says. Read once: a missing variable ends the process at its start."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Self

from sqlalchemy import URL, make_url


@dataclass(frozen=True, kw_only=True)
class Settings:
    database_url: URL
    mail_url: str | None
    """Address of the mail service's API. None: mails are only logged."""
    log_format: str
    """``console`` or ``json``, unless stdout is a terminal."""
    consumer_inside: bool
    """Whether the web application delivers events, too. Else ``shop.consumer`` does it alone."""

    @classmethod
    def from_environment(cls) -> Self:
        url = make_url(os.environ["DATABASE_URL"])
        return cls(
            database_url=url.set(drivername="postgresql+asyncpg"),
            mail_url=os.environ.get("SHOP_MAIL_URL"),
            log_format=os.environ.get("SHOP_LOG_FORMAT", "json"),
            consumer_inside=os.environ.get("SHOP_CONSUMER", "process") == "inside",
        )


settings = Settings.from_environment()
