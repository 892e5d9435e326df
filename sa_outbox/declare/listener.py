"""A listener and its options: what ``@outbox.listener(...)`` makes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypedDict

from ..errors import ConfigError
from ..event.type_patterns import first_that_wants, matcher
from ..policy.checks import ONE_DAY, check_span
from ..policy.order import DIVISIBLE, QUEUES, Order, OrderMode, checked_order, either
from ..policy.payload_filter import Where, filter_text
from ..policy.rate import Rate
from ..policy.retry import RetryPolicy
from .handler import Call, Forwarding, Handler, inspect_handler, merged

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ..policy.category import Categories


Start: TypeAlias = Literal["beginning", "now"] | int | datetime

MAX_PARTITIONS = 256
_RETRY: Final = RetryPolicy()


class CommonOptions(TypedDict, total=False):
    """The keyword arguments that ``outbox.listener``, ``outbox.queue`` and ``outbox.relay`` have.
    None is the same as leaving one out."""

    concurrency: int | None
    """How many handlers run at once, each for a different key; per partition."""
    retry: RetryPolicy | None
    """How often and when a failed event is attempted again. Left out: as the category of the event
    says, if the outbox has ``categories``, otherwise ``RetryPolicy()``."""
    batch_size: int | None
    """Maximum number of events read at a time, and passed at once to a batch handler."""
    where: Where | None
    """Only events whose payload has these fields with these values: ``{"kind": "user"}``. Compared
    in the database: the others cost no handler's time. A change applies from the cursor onwards."""
    start: Start | None
    """Where a listener that is new to the database begins: at the ``"beginning"`` of what is
    retained, ``"now"``, an id, or a time."""


class RelayOptions(CommonOptions, total=False):
    """The keyword arguments of ``outbox.listener`` that ``outbox.relay`` has too. None is the same
    as leaving one out."""

    order: Order | None
    """``"key"``: events of one key in order, different keys concurrently. ``"total"``: one after
    the other, in log order. ``"none"``: a queue, shared by all processes; urgent events first,
    otherwise roughly in log order."""
    partitions: int | None
    """How many parts its keys are divided into, each with its own cursor and lease, so that several
    processes can work on it. Takes effect when the listener is first registered."""


class QueueOptions(CommonOptions, total=False):
    """The keyword arguments of ``outbox.queue``. None is the same as leaving one out, except for
    ``timeout``, where it means no limit."""

    timeout: timedelta | None
    """Longest time for one attempt; None: no limit."""
    group_commit: bool | None
    """With a session: when several events wait, commit them in one transaction, each handled in a
    savepoint of its own. False: a transaction for every event."""
    rate: Rate | None
    """``order="none"``: maximum number of events that start per span, in each process: four
    processes start four times as many."""
    tenant_concurrency: int | None
    """``order="none"``: how many of ``concurrency`` one tenant may use, in each process."""
    tenant_rate: Rate | None
    """``order="none"``: maximum of one tenant's events that start per span, in each process."""
    external: bool | None
    """It acts on the world outside the database, so a copy of the database must not run it."""
    cancellable: bool | None
    """``order="none"``, async handlers: ``outbox.cancel`` cancels the running handler. Otherwise
    the handler is only asked, through ``event.cancel_requested``."""


class ListenerOptions(RelayOptions, QueueOptions, total=False):
    """The keyword arguments of ``outbox.listener``. None is the same as leaving one out, except
    for ``timeout`` and ``gap_wait``, where it means no limit."""

    gap_wait: timedelta | None
    """How long ``order="total"`` waits for an event whose transaction is still open while later
    ones are committed; None: forever. Then it continues, and the event comes when it commits."""


NONE_IS_NO_LIMIT: Final = ("timeout", "gap_wait")


@dataclass(frozen=True, kw_only=True)
class Listener:
    """A named, durable reader of events: its cursor is in the database, under its name. Its options
    are explained in ``ListenerOptions``."""

    name: str
    """Renamed, it is another listener, with a cursor of its own."""
    handler: Handler
    on: tuple[str, ...]
    """Event types, ``*`` for any run of characters; not those after a ``!``. A change applies from
    the cursor onwards."""
    order: Order = "key"
    concurrency: int = 1
    partitions: int = 1
    retry: RetryPolicy | None = None
    timeout: timedelta | None = timedelta(minutes=1)
    batch_size: int = 500
    group_commit: bool = True
    where: Where | None = field(default=None, hash=False)
    start: Start = "beginning"
    gap_wait: timedelta | None = timedelta(seconds=30)
    rate: Rate | None = None
    tenant_concurrency: int | None = None
    tenant_rate: Rate | None = None
    external: bool = False
    cancellable: bool = False
    categories: Categories | None = field(default=None, repr=False, compare=False)
    """Where the retries come from that it does not set itself."""
    forwarding: Forwarding | None = field(default=None, repr=False, compare=False)  # for a relay
    members: tuple[Listener, ...] = field(default=(), repr=False)
    """For a queue with several handlers: each with the event types it gets."""
    order_mode: OrderMode = field(init=False, repr=False, compare=False)
    call: Call = field(init=False)
    wants: Callable[[str], bool] = field(init=False, repr=False, compare=False)
    """Whether an event type is one of ``on``."""
    payload_filter: str | None = field(init=False, repr=False, compare=False, default=None)
    """``where`` as JSON text, as statements take it."""
    handler_of: Callable[[str], int | None] = field(init=False, repr=False, compare=False)
    """Which of ``handlers`` an event type is for, by its place; None: none of them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "wants", matcher(self.on))
        if self.where is not None:
            text = filter_text(f"where of listener {self.name!r}", self.where)
            object.__setattr__(self, "payload_filter", text)
        calls = [each.call for each in self.members] or [inspect_handler(self.name, self.handler)]
        object.__setattr__(self, "call", merged(self.name, calls))
        of_members = first_that_wants([(each.on, each.wants) for each in self.members])
        object.__setattr__(self, "handler_of", of_members)
        mode = checked_order(f"order of listener {self.name!r}", self.order)
        object.__setattr__(self, "order_mode", mode)
        self._check_numbers()
        self._check_limits()
        self._check_start()

    def is_met(self, filters: Collection[str]) -> bool:
        """Whether its filter is one of these that an event meets, or it has none."""
        return self.payload_filter is None or self.payload_filter in filters

    def takes(self, event_type: str, met: Collection[str]) -> bool:
        """Whether it gets an event of this type that meets these filters."""
        return self.wants(event_type) and self.is_met(met)

    @cached_property
    def handlers(self) -> tuple[Listener, ...]:
        """Itself, or each of its handlers as a listener to its event types."""
        return self.members or (self,)

    def retry_of(self, event_type: str) -> RetryPolicy:
        """How often and when a failed event of this type is attempted again."""
        if self.retry is not None:
            return self.retry
        return _RETRY if self.categories is None else self.categories.of(event_type).retry

    @cached_property
    def is_limited(self) -> bool:
        limits = (self.rate, self.tenant_concurrency, self.tenant_rate)
        return any(each is not None for each in limits)

    @property
    def fingerprint(self) -> str:
        """A short text that changes when what it reads, or how, is declared differently."""
        declared = f"{sorted(self.on)} {self.order}{self.payload_filter or ''}"
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
        if self.retry is not None and not isinstance(self.retry, RetryPolicy):
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
