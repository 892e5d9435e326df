"""Declaring listeners: what ``@outbox.listener(...)`` makes."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from ..errors import ConfigError
from ..policy.checks import ONE_DAY, check_span
from ..policy.order import DIVISIBLE, QUEUES, Order, OrderMode, checked_order, either
from ..policy.rate import Rate
from ..policy.retry import RetryPolicy
from .handler import Call, Forwarding, Handler, inspect_handler
from .type_patterns import matcher, patterns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..settings import Settings
    from .type_patterns import On

Start: TypeAlias = Literal["beginning", "now"] | int | datetime
H = TypeVar("H", bound=Handler)

MAX_NAME = 100
MAX_PARTITIONS = 256
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:\-]*")


@dataclass(frozen=True, kw_only=True)
class Listener:
    """A named, durable reader of events: its cursor is in the database, under its name."""

    name: str
    """Renamed, it is another listener, with a cursor of its own."""
    handler: Handler
    on: tuple[str, ...]
    """Event types, ``*`` for any run of characters. A change applies from the cursor onwards."""
    order: Order = "key"
    """``"key"``: events of one key in order, different keys concurrently. ``"total"``: one after
    the other, in log order. ``"none"``: a queue, shared by all processes; urgent events first,
    otherwise roughly in log order."""
    concurrency: int = 1
    """How many handlers run at once, each for a different key; per partition."""
    partitions: int = 1
    """How many parts its keys are divided into, each with its own cursor and lease, so that several
    processes can work on it. Takes effect when the listener is first registered."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    timeout: timedelta | None = timedelta(minutes=1)
    """Longest time for one attempt; None: no limit."""
    batch_size: int = 500
    """Maximum number of events read at a time, and passed at once to a batch handler."""
    group_commit: bool = True
    """With a session: when several events wait, commit them in one transaction, each handled in a
    savepoint of its own. False: a transaction for every event."""
    start: Start = "beginning"
    """Where a listener that is new to the database begins: at the ``"beginning"`` of what is
    retained, ``"now"``, an id, or a time."""
    gap_wait: timedelta | None = timedelta(seconds=30)
    """How long ``order="total"`` waits for an event whose transaction is still open while later
    ones are committed; None: forever. Then it continues, and the event comes when it commits."""
    rate: Rate | None = None
    """``order="none"``: maximum number of events that start per span, in each process: four
    processes start four times as many."""
    tenant_concurrency: int | None = None
    """``order="none"``: how many of ``concurrency`` one tenant may use, in each process."""
    tenant_rate: Rate | None = None
    """``order="none"``: maximum of one tenant's events that start per span, in each process."""
    external: bool = False
    """It acts on the world outside the database, so a copy of the database must not run it."""
    cancellable: bool = False
    """``order="none"``, async handlers: ``outbox.cancel`` cancels the running handler. Otherwise
    the handler is only asked, through ``event.cancel_requested``."""
    forwarding: Forwarding | None = field(default=None, repr=False, compare=False)  # for a relay
    order_mode: OrderMode = field(init=False, repr=False, compare=False)
    call: Call = field(init=False)
    wants: Callable[[str], bool] = field(init=False, repr=False, compare=False)
    """Whether an event type is one of ``on``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "wants", matcher(self.on))
        object.__setattr__(self, "call", inspect_handler(self.name, self.handler))
        mode = checked_order(f"order of listener {self.name!r}", self.order)
        object.__setattr__(self, "order_mode", mode)
        self._check_numbers()
        self._check_limits()
        self._check_start()

    @property
    def is_limited(self) -> bool:
        limits = (self.rate, self.tenant_concurrency, self.tenant_rate)
        return any(each is not None for each in limits)

    @property
    def fingerprint(self) -> str:
        """A short text that changes when what it reads, or how, is declared differently."""
        declared = f"{sorted(self.on)} {self.order}"
        return hashlib.sha256(declared.encode()).hexdigest()[:16]

    def _check_numbers(self) -> None:
        for what, value, most in (
            ("concurrency", self.concurrency, 1000),
            ("batch_size", self.batch_size, 10_000),
            ("partitions", self.partitions, MAX_PARTITIONS),
        ):
            if type(value) is not int or not 1 <= value <= most:
                raise ConfigError(f"{what} of {self.name!r} must be from 1 to {most}: {value!r}")
        if self.order_mode.is_one_at_a_time and self.concurrency != 1:
            raise ConfigError(
                f'listener {self.name!r} has order="{self.order}" and concurrency='
                f'{self.concurrency}: one event after the other, or order="key"'
            )
        if not self.order_mode.is_divisible and self.partitions != 1:
            raise ConfigError(
                f"listener {self.name!r} has order={self.order!r} and partitions="
                f"{self.partitions}: only order={either(DIVISIBLE)} can be divided by keys"
            )
        if not isinstance(self.retry, RetryPolicy):
            raise ConfigError(f"retry of {self.name!r} must be a RetryPolicy: {self.retry!r}")
        for what, flag in (
            ("external", self.external),
            ("cancellable", self.cancellable),
            ("group_commit", self.group_commit),
        ):
            if type(flag) is not bool:
                raise ConfigError(f"{what} of {self.name!r} must be True or False: {flag!r}")
        if self.cancellable:
            self._check_cancellable()
        for what, span in (("timeout", self.timeout), ("gap_wait", self.gap_wait)):
            check_span(f"{what} of listener {self.name!r}", span, most=ONE_DAY, or_none=True)

    def _check_limits(self) -> None:
        for what, rate in (("rate", self.rate), ("tenant_rate", self.tenant_rate)):
            if rate is not None and not isinstance(rate, Rate):
                raise ConfigError(f"{what} of {self.name!r} must be a Rate, not {rate!r}")
        most = self.tenant_concurrency
        if most is not None and (type(most) is not int or not 1 <= most <= self.concurrency):
            raise ConfigError(
                f"tenant_concurrency of {self.name!r} must be from 1 to its concurrency, "
                f"{self.concurrency}: {most!r}"
            )
        if self.is_limited and (not self.order_mode.is_queue or self.call.batch):
            raise ConfigError(
                f"listener {self.name!r}: rate, tenant_concurrency and tenant_rate are for queues "
                f"(order={either(QUEUES)}) whose handler takes one event at a time"
            )

    def _check_cancellable(self) -> None:
        if not self.order_mode.is_queue:
            only = f"only a queue (order={either(QUEUES)}) can be"
            why = f'its order is "{self.order}", and {only}'
        elif not self.call.is_async:
            why = "a thread can't be stopped; its handler can look at event.cancel_requested"
        elif self.call.batch:
            why = "the other events of a batch would be cancelled too"
        else:
            return
        raise ConfigError(f"listener {self.name!r} can't be cancellable: {why}")

    def _check_start(self) -> None:
        start = self.start
        if isinstance(start, datetime):
            if start.utcoffset() is None:
                raise ConfigError(f"start of {self.name!r} must have a time zone: {start}")
        elif type(start) is int:
            if not 1 <= start < 2**63:
                raise ConfigError(f"start of {self.name!r}: an id is 1 or more, not {start}")
        elif start not in ("beginning", "now"):
            raise ConfigError(
                f'start of {self.name!r} must be "beginning", "now", an id or a time: {start!r}'
            )


class Listeners:
    """The listeners of one outbox, by name."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings
        self._by_name: dict[str, Listener] = {}

    def __iter__(self) -> Iterator[Listener]:
        return iter(tuple(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Listener:
        return self._by_name[name]

    def add(self, listener: Listener) -> None:
        if listener.name in self._by_name:
            raise ConfigError(
                f"there is a listener {listener.name!r} already; a name is one cursor, so it "
                "can have one handler"
            )
        self._by_name[listener.name] = listener


def declare(
    name: str,
    on: On | None,
    handler: Handler,
    options: dict[str, Any],
    settings: Settings | None = None,
) -> Listener:
    """Make a listener from the arguments of ``@outbox.listener`` and its outbox's settings."""
    _check_name(name)
    if on is None:
        call = inspect_handler(name, handler)
        if call.payload_class is None:
            raise ConfigError(
                f"listener {name!r} needs on=: event types, or an argument annotated as "
                "Event[SomeEventType]"
            )
        on = call.payload_class
    types = patterns(name, on)
    category = None if settings is None else settings.category_by_type.common(types)
    if category is not None:
        options = {"retry": category.retry, **options}
    listener = Listener(name=name, handler=handler, on=types, **options)
    if settings is not None and settings.tenant_setting is not None:
        _check_batch(listener)
    return listener


def _check_batch(listener: Listener) -> None:
    if listener.call.batch and listener.call.session != "none":
        raise ConfigError(
            f"listener {listener.name!r} takes batches in a session, and the outbox has a "
            "tenant_setting: a batch may be of several tenants, a transaction has one. Take one "
            "event at a time, or no session"
        )


def decorator(
    name: str, on: On | None, options: dict[str, Any], listeners: Listeners
) -> Callable[[H], H]:
    def decorate(handler: H) -> H:
        listeners.add(declare(name, on, handler, options, listeners.settings))
        return handler

    _check_name(name)
    return decorate


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise ConfigError(
            f"a listener's name has up to {MAX_NAME} letters, digits and _ . : - ; got {name!r}"
        )
