"""The catalogue of bad input: what is refused where it is given, and what is odd but good.

The letters and numbers are those of the catalogue: A payload, B metadata and schedule, C names, SQL
and configuration.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic

from sa_outbox import OutboxError
from sa_outbox.errors import (
    InvalidEvent,
    PayloadError,
    PayloadTooLarge,
    UnknownEventType,
    WrongArgument,
)
from tests.support.shop import Order

YEAR = datetime.now(UTC).year
SECRET = "hunter2"
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - that is the point

# What is refused.


@dataclasses.dataclass
class Refused:
    error: type[OutboxError]
    field: str
    path: str | None = None
    payload: Callable[[], Any] | None = None
    event: Any = "probe"
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (self.event,) if self.payload is None else (self.event, self.payload())


def payload(
    path: str, make: Callable[[], Any], *, error: type[OutboxError] = PayloadError
) -> Refused:
    return Refused(error, "payload", path, make)


def option(
    field: str, value: Any, *, error: type[OutboxError] = InvalidEvent, path: str | None = None
) -> Refused:
    return Refused(error, field, path, options={field: value})


def named(value: Any, *, error: type[OutboxError] = InvalidEvent) -> Refused:
    return Refused(error, "event_type", event=value)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def within_itself() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["again"] = [value]
    return value


class Pickled:
    """Would run code if anybody pickled it, or showed it."""

    def __reduce__(self) -> Any:
        raise AssertionError("pickled")

    def __repr__(self) -> str:
        raise AssertionError("shown")


class Lazy(Mapping[str, object]):
    """Reads its values when asked, as an object of an ORM does; and now it can't."""

    def __getitem__(self, name: str) -> object:
        raise ConnectionError("detached")

    def __iter__(self) -> Iterator[str]:
        return iter(["name"])

    def __len__(self) -> int:
        return 1


class Text(str):
    __slots__ = ()


class Stage(enum.Enum):
    PLACED = "placed"


class Kind(str, enum.Enum):  # noqa: UP042 - the older way, whose format() is the member's name
    PLACED = "kind.placed"


class Unregistered:
    pass


class BrokenZone(tzinfo):
    def utcoffset(self, at: datetime | None) -> timedelta:
        raise ZeroDivisionError

    def dst(self, at: datetime | None) -> timedelta:
        raise ZeroDivisionError

    def tzname(self, at: datetime | None) -> str:
        raise ZeroDivisionError


REFUSED: dict[str, Refused] = {
    "A01-nan": payload("$", lambda: float("nan")),
    "A01-nan-inside": payload("$.x", lambda: {"x": float("nan")}),
    "A02-infinity": payload("$.x[1]", lambda: {"x": [0, float("inf")]}),
    "A02-minus-infinity": payload("$[0]", lambda: [float("-inf")]),
    "A03-nul": payload("$.a", lambda: {"a": "x\x00y"}),
    "A03-nul-in-a-key": payload("$.\\x00", lambda: {"\x00": 1}),
    "A04-nul-in-event-type": named("pro\x00be"),
    "A04-nul-in-key": option("key", "a\x00"),
    "A04-nul-in-tenant": option("tenant", "a\x00"),
    "A04-nul-in-idempotency-key": option("idempotency_key", "a\x00"),
    "A04-nul-in-header": option("headers", {"a": "\x00"}),
    "A04-nul-in-header-name": option("headers", {"a\x00": "b"}),
    "A05-escaped-surrogate": payload("$", lambda: json.loads('"\\ud800"')),
    "A06-surrogate": payload("$.a[0]", lambda: {"a": ["\udfff"]}),
    "A06-surrogate-in-a-key": payload("$.\\ud800", lambda: {"\ud800": 1}),
    "A06-surrogate-in-key": option("key", "\ud800"),
    "A06-surrogate-in-header": option("headers", {"a": "\ud800"}, error=PayloadError, path="$.a"),
    "A08-5000-digits": payload("$.n", lambda: {"n": 10**5_000}),
    "A10-huge-integer": payload("$", lambda: 10**200_000),
    "A10-overflowing-float": payload("$", lambda: float("1e200000")),
    "A11-two-keys-become-one": payload("$", lambda: {Stage.PLACED: 1, "placed": 2}),
    "A13-int-key": payload("$[1]", lambda: {1: 2}),
    "A13-none-key": payload("$.a[None]", lambda: {"a": {None: 2}}),
    "A14-tuple-key": payload("$[(1, 2)]", lambda: {(1, 2): 3}),
    "A15-set": payload("$.a", lambda: {"a": {1, 2}}),
    "A15-bytes": payload("$[0]", lambda: [b"x"]),
    "A15-decimal-nan": payload("$.a", lambda: {"a": Decimal("NaN")}),
    "A15-naive-datetime": payload("$.a", lambda: {"a": NAIVE}),
    "A15-object": payload("$", object),
    "A16-cyclic": Refused(PayloadError, "payload", None, within_itself),
    "A17-101-deep": Refused(PayloadError, "payload", None, lambda: nested(101)),
    "A17-6000-deep": Refused(PayloadError, "payload", None, lambda: nested(6_000)),
    "A18-100000-deep": Refused(PayloadError, "payload", None, lambda: nested(100_000)),
    "A19-a-byte-above-1-MB": payload("$", lambda: "x" * 1_048_575, error=PayloadTooLarge),
    "A19-16-MB": payload("$", lambda: "x" * 16_000_000, error=PayloadTooLarge),
    "A23-entity": payload("$.order", lambda: {"order": Order(name="x")}),
    "A23-lazy": payload("$", Lazy),
    "A25-secret": payload("$.password", lambda: {"password": pydantic.SecretStr(SECRET)}),
    "A26-never-pickled": payload("$.a", lambda: {"a": Pickled()}),
    "B27-empty": named(""),
    "B27-blank": named(" \t"),
    "B27-blank-inside": named("order placed"),
    "B28-201-characters": named("x" * 201),
    "B28-10-kB": named("x" * 10_240),
    "B29-line-break": named("a\r\nb"),
    "B29-control": named("a\x1bb"),
    "B29-right-to-left": named("a\u202eb"),
    "B29-emoji": named("a😀"),
    "B29-two-dots": named("a..b"),
    "B29-path": named("../a"),
    "B29-slash-at-the-end": named("a/"),
    "B29-star": named("a.*"),
    "B29-hash": named("a.#"),
    "B29-quotes": named('a","payload":"b'),
    "B29-none": named(None, error=UnknownEventType),
    "B29-number": named(7, error=UnknownEventType),
    "B29-bytes": named(b"probe", error=UnknownEventType),
    "B30-unregistered-object": named(Unregistered(), error=UnknownEventType),
    "B30-unregistered-class": named(Unregistered, error=UnknownEventType),
    "B31-empty": option("key", ""),
    "B31-1-MB": option("key", "x" * 1_000_000),
    "B31-513-bytes": option("key", "é" * 257),
    "B31-number": option("key", 7, error=WrongArgument),
    "B31-bytes": option("key", b"a", error=WrongArgument),
    "B31-empty-tenant": option("tenant", ""),
    "B31-tenant-number": option("tenant", 7, error=WrongArgument),
    "B31-empty-idempotency-key": option("idempotency_key", ""),
    "B31-idempotency-number": option("idempotency_key", 7, error=WrongArgument),
    "B35-header-injection": option("headers", {"a": "b\r\nSet-Cookie: x"}),
    "B35-header-name-injection": option("headers", {"a\r\nb": "c"}),
    "B35-header-name-not-ascii": option("headers", {"größe": "c"}),
    "B35-64-kB": option("headers", {"a": "x" * 65_536}, error=PayloadTooLarge, path="$"),
    "B35-number": option("headers", {"a": 1}, error=WrongArgument),
    "B35-list": option("headers", ["a"], error=WrongArgument),
    "B35-version": option("headers", {"version": "9"}),
    "B35-unreadable": option("headers", Lazy()),
    "B36-negative-delay": option("delay", timedelta(seconds=-1)),
    "B36-number": option("delay", 5, error=WrongArgument),
    "B37-year-9999": option("run_at", datetime(9999, 12, 31, tzinfo=UTC)),
    "B37-11-years": option("run_at", datetime(YEAR + 11, 1, 1, tzinfo=UTC)),
    "B37-year-1": option("run_at", datetime(1, 1, 1, tzinfo=UTC)),
    "B39-naive": option("run_at", NAIVE),
    "B39-date": option("run_at", date(2026, 1, 1), error=WrongArgument),
    "B39-text": option("run_at", "2026-01-01T00:00Z", error=WrongArgument),
    "B39-broken-zone": option("run_at", datetime(2026, 1, 1, tzinfo=BrokenZone())),
    "B40-endless-delay": option("delay", timedelta(days=999_999_999)),
    "B40-both": Refused(
        InvalidEvent,
        "run_at",
        options={"run_at": datetime.now(UTC), "delay": timedelta(1)},
    ),
    "B42-priority-above-smallint": option("priority", 32_768),
    "B42-priority-bool": option("priority", True, error=WrongArgument),
    "B42-priority-text": option("priority", "1", error=WrongArgument),
    "B42-priority-endless": option("priority", 10**5_000),
}


# What is accepted.


@dataclasses.dataclass
class Accepted:
    payload: Any = None
    stored: Any = None
    event: Any = "probe"
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    columns: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def row(self) -> dict[str, Any]:
        """What the log has of it."""
        return {"payload": self.stored, "event_type": self.event, **self.columns}


def value(given_value: Any, stored: Any = ...) -> Accepted:
    return Accepted(given_value, given_value if stored is ... else stored)


def column(name: str, given_value: Any, stored: Any = ...) -> Accepted:
    if stored is ...:
        # As UTC: Python calls a time in a gap or a fold unequal to every other.
        stored = given_value.astimezone(UTC) if isinstance(given_value, datetime) else given_value
    return Accepted(options={name: given_value}, columns={name: stored})


BERLIN = ZoneInfo("Europe/Berlin")
SOON = datetime.now(UTC).replace(microsecond=123_456) + timedelta(days=3)
ACCEPTED: dict[str, Accepted] = {
    "A03-the-six-characters": value("\\u0000"),
    "A07-2-to-63": value(2**63),
    "A07-2-to-70": value(2**70),
    "A07-10-to-300": value(-(10**300)),
    "A08-4300-digits": value(10**4_299),
    "A10-smallest-float": value(5e-324),
    "A10-largest-float": value(1.7976931348623157e308, 17976931348623157 * 10**292),
    "A10-decimal": value(Decimal("1e200000"), "1E+200000"),
    "A12-numbers-and-order": value({"b": 1.0, "a": 1e2, "": 1, "aa": 1e16}),
    "A13-enum-key": value({Stage.PLACED: 1}, {"placed": 1}),
    "A15-uuid": value(UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    "A15-decimal": value(Decimal("1.10"), "1.10"),
    "A15-datetime": value(datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z"),
    "A15-date": value(date(2026, 1, 2), "2026-01-02"),
    "A15-time": value(time_of_day(1, 2), "01:02:00"),
    "A15-timedelta": value(timedelta(hours=1), "PT3600S"),
    "A15-enum": value(Stage.PLACED, "placed"),
    "A17-16-deep": value(nested(16)),
    "A17-100-deep": value(nested(100)),
    "A19-1-MB": value("x" * 1_048_574),
    "A24-none": value(None),
    "A24-empty-text": value(""),
    "A24-empty-list": value([]),
    "A24-empty-object": value({}),
    "A24-zero": value(0),
    "A24-false": value(False),
    "A24-the-word-null": value("null"),
    "A24-none-inside": value([None, {"a": None}]),
    "A24-odd-text": value("é😀\u202e\u2028\x7f\x1b'\";--"),
    "B29-all-signs": Accepted(event="a:b/c-d.e_f"),
    "B29-enum-of-text": Accepted(event=Kind.PLACED, columns={"event_type": "kind.placed"}),
    "B30-unknown-type": Accepted(event="never.registered", payload=1, stored=1),
    "B31-no-key": column("key", None),
    "B31-odd-key": column("key", "größe 😀 '\"\\"),
    "B31-512-bytes": column("key", "x" * 512),
    "B31-key-of-a-subclass": column("key", Text("a")),
    "B31-tenant-of-a-subclass": column("tenant", Text("a")),
    "B31-idempotency-key-of-a-subclass": Accepted(options={"idempotency_key": Text("a")}),
    "B31-tenant": column("tenant", "größe"),
    "B35-no-headers": column("headers", {}),
    "B35-text-in-header": column("headers", {"a.b-c_d": "größe 😀 \"'\\"}),
    "B41-utc": column("run_at", SOON),
    "B41-berlin": column("run_at", SOON.astimezone(BERLIN)),
    "B41-fold": column("run_at", datetime(YEAR - 1, 10, 26, 2, 30, tzinfo=BERLIN, fold=1)),
    "B41-gap": column("run_at", datetime(YEAR - 1, 3, 30, 2, 30, tzinfo=BERLIN)),
    "B41-long-ago": column("run_at", datetime(1971, 1, 1, tzinfo=UTC)),
    "B41-20-hours-east": column("run_at", SOON.astimezone(timezone(timedelta(hours=20)))),
    "B41-a-microsecond-east": column(
        "run_at", SOON.astimezone(timezone(timedelta(microseconds=1)))
    ),
    "B42-highest-priority": column("priority", 32_767),
    "B42-lowest-priority": column("priority", -32_768),
}
