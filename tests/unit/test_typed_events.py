"""Objects of classes: each library's own types of fields are written, sent and read again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from ipaddress import IPv4Address
from pathlib import PurePosixPath
from typing import Any, Literal
from uuid import UUID

import attrs
import msgspec
import pydantic
import pydantic.dataclasses
import pytest

from sa_outbox import Event
from sa_outbox.errors import ConfigError, PayloadError
from sa_outbox.event.codec import decode, encode
from sa_outbox.event.types import EventTypes
from sa_outbox.relay import CloudEvents, Plain
from sa_outbox.relay.envelope import Envelope

URL = "https://example.com/orders?id=7"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
BYTES = b"\x00\xff"


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    HIGH = 3


class Line(pydantic.BaseModel):
    sku: str
    link: pydantic.HttpUrl


class Model(pydantic.BaseModel):
    """Strict, so that nothing is converted that is not a form of JSON."""

    model_config = pydantic.ConfigDict(
        strict=True, ser_json_bytes="base64", val_json_bytes="base64"
    )

    link: pydantic.HttpUrl
    dsn: pydantic.PostgresDsn
    tags: set[str]
    codes: frozenset[int]
    colour: Colour
    level: Level
    price: Decimal
    at: datetime
    day: date
    within: timedelta
    id: UUID
    raw: bytes
    address: IPv4Address
    path: PurePosixPath
    pair: tuple[int, str]
    by_number: dict[int, Decimal]
    by_colour: dict[Colour, set[int]]
    line: Line = pydantic.Field(alias="theLine")
    kind: Literal["order"] = "order"


def model() -> Model:
    return Model(
        link=pydantic.HttpUrl(URL),
        dsn=pydantic.PostgresDsn("postgresql://host/name"),
        tags={"a", "b"},
        codes=frozenset({1, 2}),
        colour=Colour.RED,
        level=Level.HIGH,
        price=Decimal("1.10"),
        at=NOW,
        day=NOW.date(),
        within=timedelta(days=1, seconds=2.5),
        id=UUID(int=5),
        raw=BYTES,
        address=IPv4Address("10.0.0.1"),
        path=PurePosixPath("/a/b"),
        pair=(1, "x"),
        by_number={1: Decimal("0.5")},
        by_colour={Colour.BLUE: {3}},
        theLine=Line(sku="a", link=pydantic.HttpUrl(URL)),
    )


@pydantic.dataclasses.dataclass
class PydanticDataclass:
    link: pydantic.HttpUrl
    tags: set[str]
    price: Decimal


def pydantic_dataclass() -> PydanticDataclass:
    return PydanticDataclass(pydantic.HttpUrl(URL), {"a", "b"}, Decimal("1.10"))


@dataclass
class Inner:
    tags: frozenset[str]


@dataclass
class AsDataclass:
    tags: set[str]
    by_number: dict[int, set[Colour]]
    by_id: dict[UUID, Inner]
    raw: bytes
    raws: list[bytes]
    colour: Colour
    price: Decimal
    at: datetime
    line: Line
    inner: Inner
    missing: int | msgspec.UnsetType = msgspec.UNSET


@attrs.define
class AsAttrs:
    tags: set[str]
    by_number: dict[int, set[Colour]]
    by_id: dict[UUID, Inner]
    raw: bytes
    raws: list[bytes]
    colour: Colour
    price: Decimal
    at: datetime
    line: Line
    inner: Inner
    missing: int | msgspec.UnsetType = msgspec.UNSET


class AsStruct(msgspec.Struct, rename="camel"):
    tags: set[str]
    by_number: dict[int, set[Colour]]
    by_id: dict[UUID, Inner]
    raw: bytes
    raws: list[bytes]
    colour: Colour
    price: Decimal
    at: datetime
    line: Line
    inner: Inner
    missing: int | msgspec.UnsetType = msgspec.UNSET


def filled(cls: Any) -> Any:
    return cls(
        tags={"b", "a"},
        by_number={1: {Colour.RED}},
        by_id={UUID(int=5): Inner(frozenset({"x"}))},
        raw=BYTES,
        raws=[BYTES],
        colour=Colour.RED,
        price=Decimal("1.10"),
        at=NOW,
        line=Line(sku="a", link=pydantic.HttpUrl(URL)),
        inner=Inner(frozenset({"y"})),
    )


def of(cls: type) -> Callable[[], Any]:
    return lambda: filled(cls)


MADE = pytest.mark.parametrize(
    "make",
    [model, pydantic_dataclass, of(AsDataclass), of(AsAttrs), of(AsStruct)],
    ids=["pydantic", "pydantic dataclass", "dataclass", "attrs", "msgspec"],
)


def encoded(value: object) -> str:
    return encode(value, max_bytes=10_000, max_depth=20)


@MADE
def test_every_type_of_field_comes_back_as_it_was(make: Callable[[], Any]) -> None:
    value = make()
    types = EventTypes()
    types.register("order.placed")(type(value))

    assert types.load("order.placed", 1, decode(encoded(value))) == value


@MADE
@pytest.mark.parametrize(
    "envelope", [Plain(), CloudEvents("/shop"), CloudEvents("/shop", mode="structured")]
)
def test_every_envelope_takes_such_an_object(make: Callable[[], Any], envelope: Envelope) -> None:
    event = Event("order.placed", make())

    message = envelope.wrap(event, "orders", epoch=1, prefix="ce_")

    sent = json.loads(message.body)
    data = sent["data"] if "specversion" in sent else sent
    assert data == json.loads(encoded(make()))


def test_an_object_that_a_map_has_put_into_json_is_sent_too() -> None:
    line = Line(sku="a", link=pydantic.HttpUrl(URL))
    event = Event("order.placed", {"lines": [line], "id": UUID(int=1)})

    message = Plain().wrap(event, "orders", epoch=1, prefix="")

    sent = {"lines": [{"sku": "a", "link": URL}], "id": str(UUID(int=1))}
    assert json.loads(message.body) == sent


def test_equal_sets_are_written_alike() -> None:
    one, other = (
        Inner(frozenset(map(str, range(50)))),
        Inner(frozenset(map(str, range(49, -1, -1)))),
    )

    assert encoded(one) == encoded(other)


def test_in_a_dict_sets_bytes_and_numbered_keys_stay_refused() -> None:
    for value in ({1}, b"x", {1: 2}):
        with pytest.raises(PayloadError):
            encoded({"x": value})


def test_a_key_that_another_becomes_is_refused_in_an_object_too() -> None:
    @dataclass
    class Both:
        by: dict[object, int] = field(default_factory=lambda: {1: 1, "1": 2})

    with pytest.raises(PayloadError, match="two keys become one"):
        encoded(Both())


def test_an_iterator_whose_items_nobody_could_look_at_before_they_are_gone_is_refused() -> None:
    class Logins(pydantic.BaseModel):
        passwords: Iterable[pydantic.SecretStr]

    with pytest.raises(PayloadError, match=r"\$\.passwords: an iterator can be read only once"):
        encoded(Logins(passwords=[pydantic.SecretStr("hunter2")]))


class Login(pydantic.BaseModel):
    name: str = "ada"
    password: pydantic.SecretStr = pydantic.SecretStr("hunter2")


class Team(pydantic.BaseModel):
    logins: list[Login] = [Login()]


class Key(pydantic.BaseModel):
    key: pydantic.SecretBytes = pydantic.SecretBytes(b"hunter2")


class Pin(pydantic.BaseModel):
    pin: pydantic.Secret[int] = pydantic.Secret[int](4711)


class Empty(pydantic.BaseModel):
    password: pydantic.SecretStr = pydantic.SecretStr("")


class Whatever(pydantic.BaseModel):
    value: Any = {"deep": [{"er": pydantic.SecretStr("hunter2")}]}


class Keyed(pydantic.BaseModel):
    value: dict[pydantic.SecretStr, int] = {pydantic.SecretStr("hunter2"): 1}


@pydantic.dataclasses.dataclass
class PydanticLogin:
    password: pydantic.SecretStr = pydantic.SecretStr("hunter2")


@dataclass
class DataclassLogin:
    password: object = pydantic.SecretStr("hunter2")


@attrs.define
class AttrsLogin:
    password: object = pydantic.SecretStr("hunter2")


class StructLogin(msgspec.Struct):
    password: object = pydantic.SecretStr("hunter2")


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (Login(), "$.password"),
        (Team(), "$.logins[0].password"),
        (Key(), "$.key"),
        (Pin(), "$.pin"),
        (Empty(), "$.password"),
        (Whatever(), "$.value.deep[0].er"),
        (Keyed(), "$.value[SecretStr('**********')]"),
        (PydanticLogin(), "$.password"),
        (DataclassLogin(), "$.password"),
        (AttrsLogin(), "$.password"),
        (StructLogin(), "$.password"),
        (pydantic.SecretStr("hunter2"), "$"),
        ({"login": [Login()]}, "$.login[0].password"),
        ({"login": pydantic.SecretBytes(b"hunter2")}, "$.login"),
        (DataclassLogin(password=Team()), "$.password.logins[0].password"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_secret_is_refused_wherever_it_is_with_the_reason(value: object, path: str) -> None:
    with pytest.raises(PayloadError, match="its JSON form is asterisks") as caught:
        encoded(value)

    assert caught.value.path == path
    assert "secrets do not belong in payloads" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "4711" not in str(caught.value)


def test_a_time_without_time_zone_is_refused_in_a_model_too() -> None:
    class Meeting(pydantic.BaseModel):
        times: list[datetime]

    with pytest.raises(PayloadError, match="time zone") as caught:
        encoded(Meeting(times=[NOW, NOW.replace(tzinfo=None)]))

    assert caught.value.path == "$.times[1]"


def test_a_number_that_json_does_not_know_is_refused_in_a_model_too() -> None:
    class Price(pydantic.BaseModel):
        amount: float

    with pytest.raises(PayloadError, match="nan") as caught:
        encoded(Price(amount=float("nan")))

    assert caught.value.path == "$.amount"


def test_a_model_that_reads_no_alias_and_writes_one_is_refused() -> None:
    class Renamed(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(validate_by_alias=False, validate_by_name=True)

        order_id: int = pydantic.Field(alias="orderId")

    with pytest.raises(ConfigError, match="alias"):
        EventTypes().register("order.placed")(Renamed)
