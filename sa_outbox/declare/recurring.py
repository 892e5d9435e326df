"""Declaring recurring events: what ``outbox.cron(...)`` makes."""

from __future__ import annotations

import re
from contextvars import Context
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ..errors import ConfigError
from ..event.codec import decode, encode
from ..producer.pending import make_pending
from .cron import MAX_TICKS, POLICIES, Cron, Tick, due_ticks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from uuid import UUID

    from ..producer.pending import Pending
    from ..settings import Settings
    from .cron import Missed

MAX_NAME: Final = 200
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]*")
_OUR_HEADERS: Final = ("cron", "tick", "missed")
_SOME_TICK: Final = Tick(datetime(2000, 1, 1, tzinfo=UTC), MAX_TICKS)


class Recurring:
    """A cron, and the event that each of its ticks adds. Everything is checked on construction."""

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
            traced=False,  # declared here; each event is added at its tick
        ).event
        self.cron = cron
        self.event_type: str = declared.event_type
        self.name: str = _checked_name(declared.event_type if name is None else name)
        self.missed: Missed = missed
        # A snapshot: all events are alike, whatever happens to the object later.
        size, depth = limits.max_payload_bytes, limits.max_payload_depth
        self._payload = decode(encode(declared.payload, max_bytes=size, max_depth=depth))
        self._options: dict[str, Any] = {
            "key": declared.key,
            "tenant": declared.tenant,
            "priority": declared.priority,
        }
        # Includes those of the context at declaration. Not numbers: they are set anew for each
        # event.
        self._headers = {
            name: value for name, value in declared.headers.items() if isinstance(value, str)
        }
        for taken in self._headers.keys() & set(_OUR_HEADERS):
            raise ConfigError(f"header {taken!r} of cron {self.name!r} is set for each tick")
        sample = self._make(_SOME_TICK)  # oversized headers are refused now
        if settings.admission is not None:
            settings.admission.admit(sample.event, is_deferred=False)

    def due(self, last_tick: datetime, now: datetime) -> list[Tick]:
        """The ticks after *last_tick*, up to *now*, that get an event, oldest first."""
        return due_ticks(self.cron, last_tick, now, self.missed)

    def row(self, tick: Tick) -> str:
        """A new event for *tick*, as a JSON object for ``insert_events``."""
        return self._make(tick, traced=True).row(self._limits)

    def once_more(self, at: datetime, who: str) -> tuple[UUID, str]:
        """An event besides those of the schedule, which the operator *who* wants at *at*: its id,
        and a JSON object for ``insert_events``."""
        actor = {"actor_type": "operator", "actor_id": who}
        made = self._make(Tick(at, 0), traced=True, actor=actor)
        return made.event.event_id, made.row(self._limits)

    def _make(
        self, tick: Tick, *, traced: bool = False, actor: dict[str, str] | None = None
    ) -> Pending:
        at = tick.at.isoformat()
        headers = self._headers | (actor or {}) | {"cron": self.name, "tick": at}
        if tick.missed:
            headers["missed"] = str(tick.missed)
        # In a context of its own: values bound where the program started its consumer say nothing
        # about this event, and would make two processes' events differ. The idempotency key is for
        # contracts that require one; last_tick is what ensures a single event.
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
                f"there already is a cron {recurring.name!r}: give this one another name="
            )
        self._by_name[recurring.name] = recurring


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise ConfigError(
            f"a cron's name has up to {MAX_NAME} letters, digits and _ . : / - ; got {name!r}"
        )
    return str.__str__(name)
