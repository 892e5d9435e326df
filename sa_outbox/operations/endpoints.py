"""Webhook endpoints in the database: add, list, rotate, disable, enable, remove.

Each is a listener of its own, ``webhook:NAME``: with a cursor, retries and dead letters of its own.
Consumers whose outbox says ``outbox.webhooks()`` serve all that are not disabled, and notice
changes by themselves.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from sa_outbox import sealing
from sa_outbox.errors import ConfigError, EndpointNotFound
from sa_outbox.sql import endpoints as sql
from sa_outbox.sql import operating

from .asking import Asking
from .operator import wake

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from sqlalchemy import Connection

    from sa_outbox.tables import Tables

    from .operator import Operator

PREFIX: Final = "webhook:"
MOST_SECRETS = 2
"""The new one and the one before it: receivers change theirs meanwhile."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivering:
    """Which events an endpoint gets, and how."""

    on: tuple[str, ...]
    tenant: str | None = None
    """Only events of this tenant; None: of all."""
    order: Literal["key", "total", "none"] = "key"
    concurrency: int = 4
    timeout: float = 15.0
    """Seconds for one message, from the first packet to the last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    name: str
    url: str
    delivering: Delivering
    secrets: tuple[str, ...] = field(repr=False)
    """As they are stored, see ``sealing.py``; the newest first."""
    bearer: str | None = field(default=None, repr=False)
    disabled_at: datetime | None = None
    disabled_why: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None

    @property
    def listener(self) -> str:
        return PREFIX + self.name


def list_endpoints(connection: Connection, tables: Tables) -> list[Endpoint]:
    return [endpoint_of(row) for row in Asking(connection, tables).rows(sql.all_endpoints(tables))]


def add_endpoint(
    connection: Connection,
    tables: Tables,
    endpoint: Endpoint,
    operator: Operator,
    *,
    channel: str | None = None,
) -> None:
    """Raises :class:`ConfigError` if there is one of this name."""
    rows = Asking(connection, tables).rows(
        sql.add(tables),
        name=endpoint.name,
        url=endpoint.url,
        settings=json.dumps(asdict(endpoint.delivering)),
        secrets=json.dumps(endpoint.secrets),
        bearer=endpoint.bearer,
    )
    if not rows:
        raise ConfigError(f"there is an endpoint {endpoint.name!r} already: nothing was changed")
    _tell(connection, tables, endpoint.name, "endpoint added", operator, channel)


def rotate_endpoint(
    connection: Connection,
    tables: Tables,
    name: str,
    secret: str | None,
    operator: Operator,
    *,
    channel: str | None = None,
) -> int:
    """Sign with *secret* (as it is stored) too, and with the one before it; None: with the newest
    alone. How many are active now. Raises :class:`EndpointNotFound`."""
    known = _one(connection, tables, name).secrets
    kept = known[:1] if secret is None else (secret, *known)[:MOST_SECRETS]
    Asking(connection, tables).rows(sql.put_secrets(tables), name=name, secrets=json.dumps(kept))
    _tell(connection, tables, name, "endpoint rotated", operator, channel)
    return len(kept)


def disable_endpoint(
    connection: Connection,
    tables: Tables,
    name: str,
    operator: Operator,
    *,
    channel: str | None = None,
) -> bool:
    """Send it nothing until it is enabled; its cursor stays where it is. False: it was disabled.
    Raises :class:`EndpointNotFound`."""
    return _change(
        connection,
        tables,
        name,
        sql.disable,
        "endpoint disabled",
        operator,
        channel,
        why=operator.why,
    )


def enable_endpoint(
    connection: Connection,
    tables: Tables,
    name: str,
    operator: Operator,
    *,
    channel: str | None = None,
) -> bool:
    """Go on where it stood. False: it was not disabled. Raises :class:`EndpointNotFound`."""
    return _change(connection, tables, name, sql.enable, "endpoint enabled", operator, channel)


def remove_endpoint(
    connection: Connection,
    tables: Tables,
    name: str,
    operator: Operator,
    *,
    channel: str | None = None,
) -> None:
    """Forget it. Its listener stays until it is retired: it has a cursor and maybe dead letters.
    Raises :class:`EndpointNotFound`."""
    _change(connection, tables, name, sql.remove, "endpoint removed", operator, channel)


def endpoint_of(row: Any) -> Endpoint:
    """From a row of ``sql.all_endpoints``. Raises :class:`ConfigError` for one that somebody has
    written by hand, and wrong."""
    try:
        settings = json.loads(row["settings"])
        delivering = Delivering(**{**settings, "on": tuple(settings["on"])})
        secrets = tuple(json.loads(row["secrets"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"endpoint {row['name']!r} is stored in a way that can't be read ({error}): remove it"
            " and add it again"
        ) from error
    return Endpoint(
        name=row["name"],
        url=row["url"],
        delivering=delivering,
        secrets=secrets,
        bearer=row["bearer"],
        disabled_at=row["disabled_at"],
        disabled_why=row["disabled_why"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def revealed(endpoint: Endpoint) -> tuple[tuple[str, ...], str | None]:
    """Its secrets themselves, and its bearer token. Raises :class:`ConfigError`."""
    secrets = tuple(sealing.reveal(each) for each in endpoint.secrets)
    return secrets, None if endpoint.bearer is None else sealing.reveal(endpoint.bearer)


def _one(connection: Connection, tables: Tables, name: str) -> Endpoint:
    rows = Asking(connection, tables).rows(sql.one_endpoint(tables), name=name)
    if not rows:
        raise _unknown(name)
    return endpoint_of(rows[0])


def _unknown(name: str) -> EndpointNotFound:
    return EndpointNotFound(f"there is no endpoint {name!r}")


def _change(
    connection: Connection,
    tables: Tables,
    name: str,
    statement: Callable[[Tables], Any],
    action: str,
    operator: Operator,
    channel: str | None,
    **values: object,
) -> bool:
    if not Asking(connection, tables).rows(sql.one_endpoint(tables), name=name):
        raise _unknown(name)
    if not Asking(connection, tables).rows(statement(tables), name=name, **values):
        return False
    _tell(connection, tables, name, action, operator, channel)
    return True


def _tell(
    connection: Connection,
    tables: Tables,
    name: str,
    action: str,
    operator: Operator,
    channel: str | None,
) -> None:
    Asking(connection, tables).rows(
        operating.record(tables),
        name=PREFIX + name,
        action=action,
        who=operator.who,
        detail=json.dumps({"why": operator.why}),
        event_id=None,
        event_type=None,
    )
    wake(connection, tables, channel)
