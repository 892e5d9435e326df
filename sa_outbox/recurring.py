"""Declaring recurring events: what ``outbox.cron(...)`` makes."""

from __future__ import annotations

import re
from contextvars import Context
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from .codec import decode, encode
from .cron import MOST_TICKS, POLICIES, Cron, Tick, due_ticks
from .errors import ConfigError
from .producer.pending import make_pending

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .cron import Missed
    from .producer.pending import Pending
    from .settings import Settings

MAX_NAME: Final = 200
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]*")
_OUR_HEADERS: Final = ("cron", "tick", "missed")
_SOME_TICK: Final = Tick(datetime(2000, 1, 1, tzinfo=UTC), MOST_TICKS)


class Recurring:
    """A cron, and the event that each of its ticks adds. All is checked when it is made."""

    def __init__(
        self,
        cron: Cron,
        event: object,
        payload: object,
        settings: Settings,
        *,
        name: str | None = None,
        key: str | None = None,
        tenant: str | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = 0,
        missed: Missed = "one",
    ) -> None:
        if missed not in POLICIES:
            raise ConfigError(f'missed must be "one", "skip" or "all", not {missed!r}')
        if isinstance(event, type) or callable(payload) or callable(key):
            raise ConfigError("a cron needs a payload and a key that are known now, no callable")
        self._limits = limits = settings.limits
        declared = make_pending(
            event,
            payload,
            limits,
            key=key,
            tenant=tenant,
            headers=headers,
            priority=priority,
            traced=False,  # it is declared here; each of its events is added at its tick
        ).event
        self.cron = cron
        self.event_type = declared.event_type
        self.name = _checked_name(declared.event_type if name is None else name)
        self.missed: Missed = missed
        # A copy, made by now: all events are alike, whatever becomes of the object.
        size, depth = limits.max_payload_bytes, limits.max_payload_depth
        self._payload = decode(encode(declared.payload, max_bytes=size, max_depth=depth))
        self._options: dict[str, Any] = {
            "key": declared.key,
            "tenant": declared.tenant,
            "priority": declared.priority,
        }
        # Those of the context of the declaration too. Numbers are not from there: they are set
        # again for each event.
        self._headers = {
            name: value for name, value in declared.headers.items() if isinstance(value, str)
        }
        for taken in self._headers.keys() & set(_OUR_HEADERS):
            raise ConfigError(f"header {taken!r} of cron {self.name!r} is set for each tick")
        sample = self._make(_SOME_TICK)  # headers that are too large are refused now
        if settings.contract is not None:
            settings.contract.check(sample.event)

    def due(self, last_tick: datetime, now: datetime) -> list[Tick]:
        """The ticks after *last_tick*, up to *now*, that get an event, oldest first."""
        return due_ticks(self.cron, last_tick, now, self.missed)

    def row(self, tick: Tick) -> str:
        """A new event for *tick*, as a JSON object for ``insert_events``."""
        return self._make(tick, traced=True).row(self._limits)

    def _make(self, tick: Tick, *, traced: bool = False) -> Pending:
        at = tick.at.isoformat()
        headers = self._headers | {"cron": self.name, "tick": at}
        if tick.missed:
            headers["missed"] = str(tick.missed)
        # In a context of its own: what the program has bound where it started its consumer says
        # nothing about this event, and would make those of two processes differ. The idempotency
        # key is there for contracts that ask for one; that there is one event, last_tick decides.
        return Context().run(
            make_pending,
            self.event_type,
            self._payload,
            self._limits,
            headers=headers,
            idempotency_key=f"{self.name}:{at}",
            traced=traced,
            **self._options,
        )


class Crons:
    """The recurring events of one outbox, by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Recurring] = {}

    def __iter__(self) -> Iterator[Recurring]:
        return iter(tuple(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def __getitem__(self, name: str) -> Recurring:
        return self._by_name[name]

    def add(self, recurring: Recurring) -> None:
        if recurring.name in self._by_name:
            raise ConfigError(
                f"there is a cron {recurring.name!r} already: give this one another name="
            )
        self._by_name[recurring.name] = recurring


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise ConfigError(
            f"a cron's name has up to {MAX_NAME} letters, digits and _ . : / - ; got {name!r}"
        )
    return str.__str__(name)
