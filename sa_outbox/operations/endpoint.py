"""One webhook endpoint, as it is stored, and its secrets."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from sa_outbox.errors import ConfigError
from sa_outbox.operations import sealing
from sa_outbox.operations.sealing import Binding
from sa_outbox.policy.order import checked_order
from sa_outbox.policy.payload_filter import filter_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sa_outbox.operations.sealing import Field
    from sa_outbox.policy.order import Order
    from sa_outbox.policy.payload_filter import Where

PREFIX: Final = "webhook:"
MAX_SECRETS = 2
"""The new one and the previous one: receivers switch over meanwhile."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivering:
    """Which events an endpoint gets, and how."""

    on: tuple[str, ...]
    tenant: str | None = None
    """Only this tenant's events; None: all."""
    order: Order = "key"
    concurrency: int = 4
    timeout: float = 15.0
    """Seconds for one message, from the first packet to the last."""
    probe_interval: float = 30.0
    """Seconds between two tries while it is down."""
    retry_410: bool = False
    """An answer of 410 is retried; otherwise it disables the endpoint."""
    where: Where | None = field(default=None, hash=False)
    """Only events whose payload has these fields with these values; None: all."""

    def __post_init__(self) -> None:
        """Raises :class:`ConfigError`: rows are also written by hand, and a type hint checks
        nothing."""
        if self.where is not None:
            object.__setattr__(self, "where", json.loads(filter_text("where", self.where)))
        given: dict[str, Any] = asdict(self)
        if not all(isinstance(each, str) for each in given["on"]):
            raise ConfigError("on is a list of event types")
        if given["tenant"] is not None and not isinstance(given["tenant"], str):
            raise ConfigError("tenant is text, or null")
        checked_order("order", given["order"])
        if type(given["concurrency"]) is not int or not 1 <= given["concurrency"] <= 1000:
            raise ConfigError("concurrency is a number from 1 to 1000")
        for name, most in (("timeout", 3600), ("probe_interval", 86400)):
            seconds = given[name]
            if type(seconds) not in (int, float) or not 0 < seconds <= most:
                raise ConfigError(f"{name} is a number of seconds, above 0 and at most {most}")
        if type(given["retry_410"]) is not bool:
            raise ConfigError("retry_410 is true or false")


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    name: str
    url: str
    delivering: Delivering
    secrets: tuple[str, ...] = field(repr=False)
    """As stored, see ``sealing.py``; newest first."""
    bearer: str | None = field(default=None, repr=False)
    disabled_at: datetime | None = None
    disabled_why: str | None = None
    created_at: datetime | None = None

    @property
    def listener(self) -> str:
        return PREFIX + self.name

    def binding(self, field: Field) -> Binding:
        return Binding(self.name, self.url, field)

    @property
    def stored(self) -> list[tuple[str, Binding]]:
        """Each of its secrets as stored, and where it belongs."""
        fields: tuple[Field, ...] = ("secret", "previous secret")
        found = [
            (each, self.binding(name)) for each, name in zip(self.secrets, fields, strict=False)
        ]
        return found if self.bearer is None else [*found, (self.bearer, self.binding("bearer"))]


def endpoint_of(row: Any) -> Endpoint:
    """From a row of ``sql.all_endpoints``. Raises :class:`ConfigError` for an invalid row, written
    by hand."""
    try:
        settings = json.loads(row["settings"])
        delivering = Delivering(**{**settings, "on": tuple(_list(settings["on"]))})
        secrets = tuple(_list(json.loads(row["secrets"])))
        if len(secrets) > MAX_SECRETS:
            raise ConfigError(f"it has {len(secrets)} secrets")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"endpoint {row['name']!r} is stored in a form that can't be read ({error}): remove it"
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
    )


def revealed(
    endpoint: Endpoint, readable: Sequence[str] = sealing.READABLE
) -> tuple[tuple[str, ...], str | None]:
    """Its secrets in plain text, and its bearer token. *readable*: names of variables that may be
    read. Raises :class:`ConfigError`."""
    found = [(sealing.reveal(each, at, readable), at.field) for each, at in endpoint.stored]
    secrets = tuple(each for each, name in found if name != "bearer")
    return secrets, next((each for each, name in found if name == "bearer"), None)


def _list(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ConfigError("there is no list of texts where one should be")
    return value


def sealed_again(before: Endpoint, after: Endpoint) -> Endpoint:
    """*after*, with the secrets of *before*."""
    again = [
        (sealing.moved(stored, at, after.binding(at.field)), at.field)
        for stored, at in before.stored
    ]
    return replace(
        after,
        secrets=tuple(each for each, name in again if name != "bearer"),
        bearer=next((each for each, name in again if name == "bearer"), None),
    )
