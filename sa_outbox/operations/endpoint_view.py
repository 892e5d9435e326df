"""Webhook endpoints as a list shows them. Reads no secret, so it needs no right to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

from sa_outbox.sql.listener import endpoints as sql

from .endpoint import PREFIX
from .statement_runner import OperatorRunner

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables

MAX_LISTED: Final = 1000
COVERED: Final = "***"
_READS: Final = {
    "endpoints": "SELECT (name, url, settings, disabled_at, disabled_why, created_at, updated_at)"
}


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointView:
    """One endpoint, without its secrets."""

    name: str
    address: str
    """Its URL; what may be a secret in it is covered: a password, and values of the query."""
    settings: dict[str, Any]
    """Which events it gets, and how: the fields of ``Delivering`` that were stored."""
    disabled_at: datetime | None
    disabled_why: str | None
    created_at: datetime | None
    updated_at: datetime | None

    @property
    def listener(self) -> str:
        return PREFIX + self.name

    @property
    def event_types(self) -> tuple[str, ...]:
        found = self.settings.get("on")
        return tuple(map(str, found)) if isinstance(found, list) else ()

    @property
    def where(self) -> str | None:
        """Its filter, as JSON."""
        found = self.settings.get("where")
        return None if found is None else json.dumps(found, ensure_ascii=False)


def view_endpoints(
    connection: Connection, tables: Tables, name: str | None = None
) -> tuple[EndpointView, ...]:
    """All of them by name, or the one called *name*."""
    runner = OperatorRunner(connection, tables, _READS)
    return tuple(_view(row) for row in runner.rows(sql.shown(tables), name=name, limit=MAX_LISTED))


def covered(url: str) -> str:
    """*url* without a password, and without the values of its query."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        given = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return COVERED
    user = f"{COVERED}@" if "@" in parts.netloc else ""
    query = "&".join(f"{each}={COVERED}" for each, _ in given)
    shown = f"{parts.scheme}://{user}{host}{parts.path}"
    return f"{shown}?{query}" if parts.query else shown


def _view(row: Any) -> EndpointView:
    try:
        settings = json.loads(row["settings"])
    except (ValueError, RecursionError):
        settings = {}
    values = {name: row[name] for name in row if name not in ("url", "settings")}
    return EndpointView(
        address=covered(row["url"]),
        settings=settings if isinstance(settings, dict) else {},
        **values,
    )
