"""Event types: registering classes, and reading what older versions of them wrote."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest

from sa_outbox.errors import ConfigError, DecodeError, InvalidEvent, UnknownEventType
from sa_outbox.event.codec import decode, encode
from sa_outbox.event.types import EventTypes, event_type, event_types, upcaster, version_of


@pytest.fixture
def types() -> EventTypes:
    """A registry of the test's own."""
    return EventTypes()


class Colour(Enum):
    RED = "red"


@dataclasses.dataclass(frozen=True)
class Line:
    sku: str
    price: Decimal


@dataclasses.dataclass(frozen=True)
class AsDataclass:
    id: UUID
    at: datetime
    within: timedelta
    lines: list[Line]
    colour: Colour
    note: str | None = None


@attrs.frozen
class AsAttrs:
    id: UUID
    at: datetime
    within: timedelta
    lines: list[Line]
    colour: Colour
    note: str | None = None


class AsStruct(msgspec.Struct, frozen=True, rename="camel"):
    id: UUID
    at: datetime
    within: timedelta
    lines: list[Line]
    colour: Colour
    note: str | None = None


class AsPydantic(pydantic.BaseModel):
    id: UUID
    at: datetime
    within: timedelta
    lines: list[Line]
    colour: Colour = pydantic.Field(alias="theColour")
    note: str | None = None


class Listed(msgspec.Struct, array_like=True):
    order_id: int


class Card(msgspec.Struct, tag=True):
    number: str


class Transfer(msgspec.Struct, tag=True):
    iban: str


class Paid(msgspec.Struct):
    by: Card | Transfer


class Renamed(pydantic.BaseModel):
    order_id: int = pydantic.Field(validation_alias="in", serialization_alias="out")


def written(value: object) -> Any:
    """The payload of *value* as a reader of the log gets it."""
    return decode(encode(value, max_bytes=10_000, max_depth=10))


class TestRegister:
    def test_the_decorator_returns_the_class_itself(self, types: EventTypes) -> None:
        assert types.register("order.placed")(Line) is Line

    def test_a_class_knows_its_name_and_version(self, types: EventTypes) -> None:
        types.register("order.placed", version=3)(Line)

        known = types.of(Line)
        assert (known.name, known.version, known.payload_class) == ("order.placed", 3, Line)
        assert types.version_of("order.placed") == 3

    def test_a_class_that_is_not_registered_is_refused_with_advice(self, types: EventTypes) -> None:
        with pytest.raises(UnknownEventType, match=r"Line .*@event_type") as caught:
            types.of(Line)

        assert caught.value.field == "event_type"
        assert isinstance(caught.value, TypeError)

    def test_a_subclass_of_a_registered_class_is_not_registered(self, types: EventTypes) -> None:
        types.register("order.placed")(Line)

        class Special(Line):
            pass

        with pytest.raises(UnknownEventType):
            types.of(Special)

    def test_a_name_that_is_not_registered_has_no_version(self, types: EventTypes) -> None:
        assert types.version_of("order.placed") is None

    def test_a_name_belongs_to_one_class(self, types: EventTypes) -> None:
        types.register("order.placed")(Line)

        with pytest.raises(ConfigError, match="belongs to Line already"):
            types.register("order.placed")(AsAttrs)
        assert types.of(Line).name == "order.placed"
        with pytest.raises(UnknownEventType):
            types.of(AsAttrs)

    def test_a_class_has_one_name(self, types: EventTypes) -> None:
        types.register("order.placed")(Line)

        with pytest.raises(ConfigError, match=r"is 'order\.placed' already"):
            types.register("order.changed")(Line)
        with pytest.raises(ConfigError, match=r"is 'order\.placed' already"):
            types.register("order.placed", version=2)(Line)
        assert types.version_of("order.changed") is None

    def test_registering_the_same_again_changes_nothing(self, types: EventTypes) -> None:
        for _ in range(2):
            types.register("order.placed")(Line)

        assert types.of(Line).version == 1

    def test_a_reloaded_module_may_define_it_again(self, types: EventTypes) -> None:
        def define() -> type:
            @types.register("order.placed")
            @dataclasses.dataclass
            class Placed:
                order_id: int

            return Placed

        old, new = define(), define()

        assert old is not new
        assert types.of(new).payload_class is new
        assert type(types.load("order.placed", 1, {"order_id": 1})) is new
        assert types.of(old).name == "order.placed"

    @pytest.mark.parametrize("name", ["", "a b", "a..b", "x" * 201, "a\x00"])
    def test_a_name_that_could_not_be_stored_is_refused_at_once(
        self, types: EventTypes, name: str
    ) -> None:
        with pytest.raises(InvalidEvent):
            types.register(name)
        with pytest.raises(InvalidEvent):
            types.upcast(name, since=1)

    @pytest.mark.parametrize("version", [0, -1, True, 1.0, "1", None])
    def test_a_version_is_a_whole_number_from_1(self, types: EventTypes, version: Any) -> None:
        with pytest.raises(ConfigError, match="version"):
            types.register("order.placed", version=version)
        with pytest.raises(ConfigError, match="since"):
            types.upcast("order.placed", since=version)

    def test_the_public_decorators_are_those_of_the_process(self) -> None:
        @event_type("test_event_types.public", version=2)
        @dataclasses.dataclass
        class Public:
            n: int

        @upcaster("test_event_types.public", since=1)
        def up(payload: Any) -> Any:
            return {"n": payload["m"]}

        assert event_types.of(Public).version == 2
        assert event_types.load("test_event_types.public", 1, {"m": 3}) == Public(3)


class TestLoad:
    @pytest.mark.parametrize("cls", [AsDataclass, AsAttrs, AsStruct, AsPydantic])
    def test_each_kind_of_class_comes_back_as_it_was_written(
        self, types: EventTypes, cls: Any
    ) -> None:
        types.register("order.placed")(cls)
        colour = "theColour" if cls is AsPydantic else "colour"
        value = cls(
            id=UUID(int=5),
            at=datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC),
            within=timedelta(days=-400, microseconds=3),
            lines=[Line("a", Decimal("1.10"))],
            **{colour: Colour.RED},
        )

        loaded = types.load("order.placed", 1, written(value))

        assert type(loaded) is cls
        assert loaded == value

    def test_a_struct_like_an_array_comes_back(self, types: EventTypes) -> None:
        types.register("order.placed")(Listed)

        assert types.load("order.placed", 1, written(Listed(1))) == Listed(1)

    def test_a_tagged_struct_in_a_union_comes_back(self, types: EventTypes) -> None:
        types.register("order.paid")(Paid)

        assert types.load("order.paid", 1, written(Paid(Transfer("DE")))) == Paid(Transfer("DE"))

    def test_a_model_written_by_one_alias_and_read_by_another_is_refused(
        self, types: EventTypes
    ) -> None:
        with pytest.raises(ConfigError, match="alias"):
            types.register("order.placed")(Renamed)

    def test_an_unregistered_name_stays_json(self, types: EventTypes) -> None:
        payload = {"a": [1, None]}

        assert types.load("order.placed", 5, payload) is payload

    @pytest.mark.parametrize("cls", [AsDataclass, AsAttrs, AsStruct, AsPydantic])
    @pytest.mark.parametrize("payload", [None, 1, [], "x", {}, {"id": "not a uuid"}])
    def test_a_payload_that_does_not_fit_is_a_decode_error(
        self, types: EventTypes, cls: Any, payload: Any
    ) -> None:
        types.register("order.placed")(cls)

        with pytest.raises(DecodeError, match="does not fit") as caught:
            types.load("order.placed", 1, payload)

        assert caught.value.__cause__ is not None

    @pytest.mark.parametrize("cls", [AsDataclass, AsPydantic])
    def test_the_error_does_not_repeat_the_payload(self, types: EventTypes, cls: Any) -> None:
        types.register("order.placed")(cls)

        with pytest.raises(DecodeError) as caught:
            types.load("order.placed", 1, {"id": "hunter2"})

        assert "hunter2" not in str(caught.value)

    def test_a_newer_version_asks_for_newer_code(self, types: EventTypes) -> None:
        types.register("order.placed", version=2)(Line)

        with pytest.raises(DecodeError, match=r"version 3, this process knows 2.*deploy"):
            types.load("order.placed", 3, {"sku": "a", "price": "1"})


class TestUpcasters:
    @pytest.fixture
    def chain(self, types: EventTypes) -> EventTypes:
        types.register("line.added", version=3)(Line)

        @types.upcast("line.added", since=1)
        def _name_to_sku(payload: Any) -> Any:
            return {"sku": payload["name"], "cents": payload["cents"]}

        @types.upcast("line.added", since=2)
        def _cents_to_price(payload: Any) -> Any:
            return {"sku": payload["sku"], "price": str(Decimal(payload["cents"]) / 100)}

        return types

    @pytest.mark.parametrize(
        ("version", "payload"),
        [
            (1, {"name": "a", "cents": 110}),
            (2, {"sku": "a", "cents": 110}),
            (3, {"sku": "a", "price": "1.1"}),
        ],
    )
    def test_every_older_version_is_read_by_the_chain(
        self, chain: EventTypes, version: int, payload: Any
    ) -> None:
        assert chain.load("line.added", version, payload) == Line("a", Decimal("1.1"))

    def test_a_missing_link_is_named(self, types: EventTypes) -> None:
        types.register("line.added", version=3)(Line)
        types.upcast("line.added", since=1)(lambda payload: payload)

        with pytest.raises(DecodeError, match="no upcaster from version 2"):
            types.load("line.added", 1, {})

    def test_a_version_has_one_upcaster(self, types: EventTypes) -> None:
        def one(payload: Any) -> Any:
            return payload

        def other(payload: Any) -> Any:
            return payload

        types.upcast("line.added", since=1)(one)

        with pytest.raises(ConfigError, match="upcaster from version 1 already"):
            types.upcast("line.added", since=1)(other)

    def test_a_reloaded_module_may_define_an_upcaster_again(self, types: EventTypes) -> None:
        types.register("line.added", version=2)(Line)

        def define(price: str) -> None:
            @types.upcast("line.added", since=1)
            def _up(payload: Any) -> Any:
                return {**payload, "price": price}

        define("1")
        define("2")

        assert types.load("line.added", 1, {"sku": "a"}) == Line("a", Decimal(2))

    def test_an_upcaster_may_be_registered_before_its_class(self, types: EventTypes) -> None:
        types.upcast("line.added", since=1)(lambda payload: {**payload, "price": "1"})
        types.register("line.added", version=2)(Line)

        assert types.load("line.added", 1, {"sku": "a"}) == Line("a", Decimal(1))

    def test_an_upcaster_that_raises_is_a_decode_error(self, types: EventTypes) -> None:
        types.register("line.added", version=2)(Line)
        types.upcast("line.added", since=1)(lambda payload: payload["missing"])

        with pytest.raises(DecodeError):
            types.load("line.added", 1, {})


class TestVersionInHeaders:
    @pytest.mark.parametrize(
        ("headers", "version"),
        [({}, 1), ({"version": 4}, 4), ({"version": "4"}, 1), ({"version": True}, 1)],
    )
    def test_it_is_1_unless_the_headers_say_a_number(
        self, headers: dict[str, str | int], version: int
    ) -> None:
        assert version_of(headers) == version
