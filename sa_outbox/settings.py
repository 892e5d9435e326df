"""Every setting: its meaning, default and limits. Validated on construction."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cached_property
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Literal, get_args

from .database.names import Names as Names  # noqa: PLC0414 - public here
from .database.names import check_identifier
from .errors import ConfigError
from .policy.admission import Admission
from .policy.category import Categories
from .policy.checks import ONE_DAY, TEN_YEARS, check_span
from .policy.contract import Contract

if TYPE_CHECKING:
    from collections.abc import Callable

    from .event.event import Event
    from .policy.category import Given

RETENTIONS = ("retention", "audit_retention", "dead_letter_retention")
IDLE = ("idle_after", "idle_poll_interval")
"""Settings of a consumer that are a time, or None: never."""
"""Settings that are spans of up to ten years, or None."""


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
    """Maximum bytes of events waiting in one session for a flush (for non-ASCII text, characters
    are counted)."""

    max_causation_depth: int = 100
    """Longest chain of events in which each was added by the handler of the previous one. Stops a
    handler that adds the event type it listens to."""

    max_caused_events: int = 1_000_000
    """Maximum number of events that one event may cause, directly or through further handlers.
    Stops handlers that add several events for each event."""

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
    """Everything an ``Outbox`` can be configured with."""

    names: Names = field(default_factory=Names)
    limits: Limits = field(default_factory=Limits)
    notify: Notify = "on"
    """``"on"``: after a commit that wrote events, one NOTIFY for many commits wakes the consumers.
    ``"off"``: no connection and no thread for it; consumers find the events by polling.

    The environment variable ``SA_OUTBOX_NOTIFY=off`` overrides this setting.
    """
    idempotency_key_lifetime: timedelta = timedelta(days=7)
    """How long an event with an ``idempotency_key`` prevents another with the same key from being
    written, by the database's clock."""
    redact: Callable[[str], str] | None = None
    """Called with an error's text before it is stored, to remove what must not be kept. Passwords
    in URLs and values after ``password=``, ``token=`` and the like are removed first."""
    contract: Contract | None = None
    """The fields events must have; None: no field is required."""
    check_event: Callable[[Event[Any]], None] | None = None
    """Called with each event that is added, before it is accepted: what it raises refuses the
    event. One with a payload or key that only the flush makes known is checked by the flush.
    ``NoSecrets()`` is one."""
    categories: Given | None = None
    """Maps event types, with ``*`` for any run of characters, to categories. An event's category
    decides how long its idempotency key lives, how it is retried by listeners that set no
    ``retry=``, and which ``outbox.queue`` gets it."""
    tenant_setting: str | None = None
    """A PostgreSQL setting, such as ``app.tenant``, that holds the event's tenant in the
    transaction of every handler with a session, for row-level security policies. None: not set."""

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
        for what, function in (("redact", self.redact), ("check_event", self.check_event)):
            if function is not None and (not callable(function) or iscoroutinefunction(function)):
                raise ConfigError(f"{what} must be a function that is not async: {function!r}")
        if isinstance(self.check_event, type):
            name = self.check_event.__name__
            raise ConfigError(f"check_event must be a function, not a class: write {name}()")
        if not isinstance(self.names, Names):
            raise ConfigError(f"names must be Names, not {self.names!r}")
        if not isinstance(self.limits, Limits):
            raise ConfigError(f"limits must be Limits, not {self.limits!r}")
        if self.notify not in ("on", "off"):
            raise ConfigError(f'notify must be "on" or "off", not {self.notify!r}')
        lifetime = self.idempotency_key_lifetime
        check_span("idempotency_key_lifetime", lifetime, most=TEN_YEARS)

    def _check_tenancy(self) -> None:
        if self.contract is not None and not isinstance(self.contract, Contract):
            raise ConfigError(f"contract must be a Contract, not {self.contract!r}")
        setting = self.tenant_setting
        if setting is not None:
            if not isinstance(setting, str) or setting.count(".") != 1:
                raise ConfigError(f"tenant_setting must look like 'app.tenant', not {setting!r}")
            for part in setting.split("."):
                check_identifier("each part of tenant_setting", part)
        self.category_by_type  # noqa: B018 - refused here and not at the first event

    @cached_property
    def category_by_type(self) -> Categories:
        """Finds the category of an event type; the most specific pattern counts."""
        return Categories(self.categories)

    @cached_property
    def admission(self) -> Admission | None:
        """None: every event is taken, and nobody has to ask."""
        if self.contract is None and self.check_event is None:
            return None
        return Admission(self.contract, self.check_event)

    def key_lifetime_of(self, event_type: str) -> timedelta:
        """How long an idempotency key of this event type keeps others from being written."""
        return self.category_by_type.of(event_type).key_lifetime or self.idempotency_key_lifetime

    @property
    def alert_depth(self) -> int:
        """Longest chain of causation at whose end a dead letter adds an alert; 0: none does."""
        return self.limits.max_causation_depth if self.alerts == "on" else 0

    @property
    def notifies(self) -> bool:
        """Whether commits send NOTIFY: as set, unless the environment switches it off."""
        return self.notify == "on" and notify_allowed_by_environment()


LogLevel = Literal["debug", "info", "warning", "error", "off"]
LogStarts = Literal["debug", "info"]
CHOICES: dict[str, tuple[str, ...]] = {
    "log_level": get_args(LogLevel),
    "log_starts": get_args(LogStarts),
}
"""Settings of a consumer that are one of a few words."""


@dataclass(frozen=True, kw_only=True)
class ConsumerSettings:
    """How a consumer process behaves. Every field is also an option and an environment variable of
    ``python -m sa_outbox.consume``."""

    lease_duration: timedelta = timedelta(seconds=30)
    """How long a listener stays assigned to a consumer that has gone silent. Leases are renewed
    every third of it. After a crash, nobody works on the crashed consumer's listeners for this
    long."""

    poll_interval: timedelta = timedelta(seconds=30)
    """Longest time between two checks for events while NOTIFY works. It bounds the delay of an
    event whose notification was lost."""

    poll_interval_without_notify: timedelta = timedelta(seconds=1)
    """Longest time between two checks for events while NOTIFY is off or its connection is down."""

    probe_interval: timedelta = timedelta(seconds=10)
    """How often the LISTEN connection is probed: such connections die silently."""

    probe_timeout: timedelta = timedelta(seconds=5)
    """How long the LISTEN connection may take to answer a probe, and any of the consumer's own
    connections to connect."""

    statement_timeout: timedelta = timedelta(seconds=30)
    """How long one of the consumer's own statements may take; then its connection is dropped."""

    grace_period: timedelta = timedelta(seconds=25)
    """How long running handlers may continue after SIGTERM. Below the 30 s that Kubernetes
    allows."""

    verify_interval: timedelta = timedelta(minutes=5)
    """How often the assumptions about the schema are verified again; always after a reconnect."""

    measure_interval: timedelta = timedelta(seconds=10)
    """How often the backlog of each listener is measured. Only while an observer wants it, such as
    metrics."""

    blocked_after: timedelta = timedelta(seconds=5)
    """A handler that blocks the event loop for this long is reported, with the stack."""

    idle_after: timedelta | None = None
    """After this long with nothing to do, all connections are closed, so that a database may be
    suspended; None: never. It restarts when a retry, a scheduled event or a cron is due, when
    this process adds an event, and when it is woken."""

    idle_poll_interval: timedelta | None = None
    """How often it looks for events of others while it sleeps; None: never, it has to be woken."""

    max_crashes: int = 3
    """An event that was attempted alone and crashed the process this many times becomes a dead
    letter."""

    threads: int = 40
    """Maximum number of sync handlers that run at once in this process."""

    maintenance_interval: timedelta = timedelta(minutes=1)
    """How often partitions are created ahead of time and expired data is removed."""

    retention: timedelta | None = timedelta(days=7)
    """How long events stay in the log after they were written; None: forever. They are kept longer
    while a listener still needs them."""

    audit_retention: timedelta | None = timedelta(days=90)
    """How long audit records are kept; None: forever."""

    dead_letter_retention: timedelta | None = timedelta(days=90)
    """How long dead letters are kept after they were resolved; None: forever. Unresolved dead
    letters are always kept."""

    log_level: LogLevel = "info"
    """The least important lines that are logged: debug has several for every event, off has none.
    They go to the program's structlog if it has configured one, else to its ``logging``."""

    log_starts: LogStarts = "debug"
    """Level of the line that a queue logs before each attempt, ``delivery started``. For all other
    listeners it is debug."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in CHOICES:
                if value not in CHOICES[each.name]:
                    known = ", ".join(CHOICES[each.name])
                    raise ConfigError(f"{each.name} must be one of {known}, not {value!r}")
            elif isinstance(each.default, int):
                if type(value) is not int or value < 1:
                    raise ConfigError(f"{each.name} must be a positive whole number: {value!r}")
            elif each.name in IDLE:
                check_span(each.name, value, most=ONE_DAY, or_none=True)
            elif each.name in RETENTIONS:
                check_span(each.name, value, most=TEN_YEARS, or_none=True)
            else:
                check_span(each.name, value, most=ONE_DAY)


def notify_allowed_by_environment() -> bool:
    value = os.environ.get("SA_OUTBOX_NOTIFY", "on").strip().lower()
    if value not in ("on", "off"):
        raise ConfigError(f'SA_OUTBOX_NOTIFY must be "on" or "off", not {value!r}')
    return value == "on"
