"""What can be set, with its meaning, default and limits. Checked when it is made."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from .category import Categories
from .contract import Contract
from .errors import ConfigError
from .table_names import Names as Names  # noqa: PLC0414 - public here
from .table_names import check_identifier

if TYPE_CHECKING:
    from collections.abc import Callable

    from .category import Given

RETENTIONS = ("retention", "audit_retention", "dead_letter_retention")
"""Settings that are spans of up to ten years, or None."""

_NO_TIME, _ONE_DAY, _TEN_YEARS = timedelta(0), timedelta(days=1), timedelta(days=3653)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much one event, and one session, may hold."""

    max_payload_bytes: int = 1_048_576
    """Largest payload as JSON, in bytes of UTF-8. PostgreSQL's own limit is near 256 MB."""

    max_payload_depth: int = 100
    """Deepest nesting of a payload. Very deep JSON can be stored but not read again."""

    max_header_bytes: int = 16_384
    """Largest headers of one event as JSON, in bytes."""

    max_pending_bytes: int = 67_108_864
    """Most bytes of events that may wait in one session for a flush (of text beyond ASCII, the
    characters are counted)."""

    max_causation_depth: int = 100
    """Longest chain of events of which each was added by the handler of the one before. A handler
    that adds the type of event it listens to is stopped by it."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if type(value) is not int or value < 1:
                raise ConfigError(f"{each.name} must be a positive whole number, not {value!r}")
        if self.max_payload_bytes > 250_000_000:
            raise ConfigError("max_payload_bytes: PostgreSQL stores at most 250,000,000 bytes")
        if self.max_payload_depth > 200:
            raise ConfigError("max_payload_depth: at most 200, Python's own limit is near")


Notify = Literal["on", "off"]
Audit = Literal["off", "exceptions", "all"]
Alerts = Literal["off", "on"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything an ``Outbox`` can be told."""

    names: Names = field(default_factory=Names)
    limits: Limits = field(default_factory=Limits)
    notify: Notify = "on"
    """``"on"``: after a commit that wrote events, one NOTIFY for many commits wakes the consumers.
    ``"off"``: no connection and no thread for it; consumers find the events by polling.

    The environment variable ``SA_OUTBOX_NOTIFY=off`` switches it off whatever stands here.
    """
    idempotency_key_lifetime: timedelta = timedelta(days=7)
    """How long an event with an ``idempotency_key`` keeps others with that key from being
    written, by the database's clock."""
    redact: Callable[[str], str] | None = None
    """Called with an error's text before it is stored: takes out what must not be kept. Passwords
    in URLs and what follows ``password=``, ``token=`` and the like are taken out before."""
    contract: Contract | None = None
    """The fields without which no event is added; None: none is asked for."""
    categories: Given | None = None
    """Event types, ``*`` for any run of characters, to the category of each. It decides how long
    an idempotency key lives, and the retries of listeners that say nothing of them."""
    tenant_setting: str | None = None
    """A setting of PostgreSQL, as ``app.tenant``, that has the event's tenant in the transaction
    of every handler with a session: for policies of row-level security. None: none is set."""

    audit: Audit = "off"
    """What is recorded in ``outbox_audit``, in the transaction in which it happens.
    ``"exceptions"``: failed attempts, retries, dead letters, cancellations. ``"all"``: also that an
    event was added, and that an attempt began and succeeded; a row or two for each event."""

    alerts: Alerts = "off"
    """``"on"``: a dead letter adds an event ``outbox.dead_lettered`` to the log, in its own
    transaction, which a listener can handle."""

    def __post_init__(self) -> None:
        self._check_tenancy()
        if self.alerts not in ("off", "on"):
            raise ConfigError(f'alerts must be "off" or "on", not {self.alerts!r}')
        if self.audit not in ("off", "exceptions", "all"):
            raise ConfigError(f'audit must be "off", "exceptions" or "all", not {self.audit!r}')
        if self.redact is not None and not callable(self.redact):
            raise ConfigError(f"redact must be a function, not {self.redact!r}")
        if not isinstance(self.names, Names):
            raise ConfigError(f"names must be Names, not {self.names!r}")
        if not isinstance(self.limits, Limits):
            raise ConfigError(f"limits must be Limits, not {self.limits!r}")
        if self.notify not in ("on", "off"):
            raise ConfigError(f'notify must be "on" or "off", not {self.notify!r}')
        lifetime = self.idempotency_key_lifetime
        if not isinstance(lifetime, timedelta) or not _NO_TIME < lifetime <= _TEN_YEARS:
            raise ConfigError(
                "idempotency_key_lifetime must be a timedelta above zero and up to ten years, "
                f"not {lifetime!r}"
            )

    def _check_tenancy(self) -> None:
        if self.contract is not None and not isinstance(self.contract, Contract):
            raise ConfigError(f"contract must be a Contract, not {self.contract!r}")
        setting = self.tenant_setting
        if setting is not None:
            if not isinstance(setting, str) or setting.count(".") != 1:
                raise ConfigError(f"tenant_setting must be as 'app.tenant', not {setting!r}")
            for part in setting.split("."):
                check_identifier("each part of tenant_setting", part)
        self.category_by_type  # noqa: B018 - refused here and not at the first event

    @cached_property
    def category_by_type(self) -> Categories:
        return Categories(self.categories)

    def key_lifetime_of(self, event_type: str) -> timedelta:
        """How long an idempotency key of this event type keeps others from being written."""
        return self.category_by_type.of(event_type).key_lifetime or self.idempotency_key_lifetime

    @property
    def alert_depth(self) -> int:
        """Longest chain of causation at whose end a dead letter adds an alert; 0: none does."""
        return self.limits.max_causation_depth if self.alerts == "on" else 0

    @property
    def notifies(self) -> bool:
        return self.notify == "on" and notify_allowed_by_environment()


@dataclass(frozen=True, kw_only=True)
class ConsumerSettings:
    """How a consumer process behaves. Each can be set by an option and an environment variable of
    ``python -m sa_outbox.consume`` as well."""

    lease_duration: timedelta = timedelta(seconds=30)
    """How long a listener stays with a consumer that is not heard of any more. Renewed at a third
    of it. After a crash, nobody works for its listeners for so long."""

    poll_interval: timedelta = timedelta(seconds=30)
    """Longest time without looking for events while NOTIFY works. It bounds the delay of an event
    whose notification was lost."""

    poll_interval_without_notify: timedelta = timedelta(seconds=1)
    """The same while NOTIFY is switched off or its connection is away."""

    probe_interval: timedelta = timedelta(seconds=10)
    """How often the LISTEN connection is asked whether it still listens; they die silently."""

    probe_timeout: timedelta = timedelta(seconds=5)
    """How long it may take to answer, and any other statement of the consumer's own to connect."""

    statement_timeout: timedelta = timedelta(seconds=30)
    """How long a statement of the consumer's own may take; then its connection is given up."""

    grace_period: timedelta = timedelta(seconds=25)
    """How long handlers that run may go on after SIGTERM. Below the 30 s that Kubernetes gives."""

    verify_interval: timedelta = timedelta(minutes=5)
    """How often the assumptions about the schema are verified again; after a reconnect always."""

    measure_interval: timedelta = timedelta(seconds=10)
    """How often the database is asked what waits for each listener. Only while an observer wants to
    know it, such as metrics."""

    blocked_after: timedelta = timedelta(seconds=5)
    """A handler that blocks the event loop for so long is reported, with the stack."""

    max_crashes: int = 3
    """An event that was attempted alone and took the process with it so many times becomes a dead
    letter."""

    threads: int = 40
    """Most sync handlers that run at once in this process."""

    maintenance_interval: timedelta = timedelta(minutes=1)
    """How often partitions are made ahead, and what has had its time is removed."""

    retention: timedelta | None = timedelta(days=7)
    """How long events stay in the log after they were written; None: for ever. Longer, as long as a
    listener still needs them."""

    audit_retention: timedelta | None = timedelta(days=90)
    """How long audit records are kept; None: for ever."""

    dead_letter_retention: timedelta | None = timedelta(days=90)
    """How long dead letters are kept after somebody resolved them; None: for ever. Those that
    nobody has resolved are always kept."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(each.default, int):
                if type(value) is not int or value < 1:
                    raise ConfigError(f"{each.name} must be a positive whole number: {value!r}")
            elif each.name in RETENTIONS:
                if value is not None and (
                    not isinstance(value, timedelta) or not _NO_TIME < value <= _TEN_YEARS
                ):
                    raise ConfigError(
                        f"{each.name} must be a timedelta above zero and up to ten years, or None, "
                        f"not {value!r}"
                    )
            elif not isinstance(value, timedelta) or not _NO_TIME < value <= _ONE_DAY:
                raise ConfigError(
                    f"{each.name} must be a timedelta above zero and up to a day, not {value!r}"
                )


def notify_allowed_by_environment() -> bool:
    value = os.environ.get("SA_OUTBOX_NOTIFY", "on").strip().lower()
    if value not in ("on", "off"):
        raise ConfigError(f'SA_OUTBOX_NOTIFY must be "on" or "off", not {value!r}')
    return value == "on"
