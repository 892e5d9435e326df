"""What may be in a payload, what it is stored as, and what is said about the rest."""

from __future__ import annotations

import dataclasses
import json
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Column, Integer, Table
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    MappedAsDataclass,
    mapped_column,
    registry,
)

from sa_outbox.errors import DecodeError, PayloadError, PayloadTooLarge
from sa_outbox.event.codec import MAX_EXPANDED, decode, encode
from tests.support.shop import Order

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
"""What PostgreSQL can store."""
WILD_TEXT = st.text(st.characters())
"""With U+0000 and lone surrogates."""


def json_values(text: st.SearchStrategy[str], *, odd: bool) -> st.SearchStrategy[Any]:
    numbers = st.floats(allow_nan=odd, allow_infinity=odd)
    integers = st.integers(-(2**65), 2**65) | st.integers(-(10**4298), 10**4298)
    return st.recursive(
        st.none() | st.booleans() | integers | numbers | text,
        lambda inner: (
            st.lists(inner, max_size=5)
            | st.dictionaries(text | st.integers() if odd else text, inner, max_size=5)
        ),
        max_leaves=20,
    )


def encoded(value: object, *, max_bytes: int = 1_000_000, max_depth: int = 100) -> str:
    return encode(value, max_bytes=max_bytes, max_depth=max_depth)


def stored(value: object) -> Any:
    """What a reader of the log gets for *value*."""
    return json.loads(encoded(value))


def refusal(value: object, **limits: int) -> PayloadError:
    with pytest.raises(PayloadError) as caught:
        encoded(value, **limits)
    return caught.value


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


class TestNumbersThatGrow:
    """PostgreSQL stores a number with all its digits, and that is what is read back."""

    def test_the_limit_is_of_what_is_read_back(self) -> None:
        error = refusal([1e308] * 170_000, max_bytes=1_048_576)

        assert isinstance(error, PayloadTooLarge)
        assert error.size > 170_000 * 309

    @given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
    def test_it_is_exact(self, numbers: list[float]) -> None:
        written = [msgspec.json.encode(each).decode() for each in numbers]
        size = len(",".join(f"{Decimal(each):f}" if "e" in each else each for each in written)) + 2

        encoded({"x": numbers}, max_bytes=size + 6)
        assert refusal({"x": numbers}, max_bytes=size + 5).args

    @given(st.floats(allow_nan=False, allow_infinity=False))
    def test_no_number_grows_by_more_than_is_said(self, number: float) -> None:
        short = len(msgspec.json.encode(number))
        assert len(f"{Decimal(repr(number)):f}") <= MAX_EXPANDED * short

    def test_an_exponent_in_a_text_is_no_number(self) -> None:
        encoded({"x": "1e308" * 1000, "y": 1.5}, max_bytes=5_100)


class TestPlainValues:
    @given(json_values(TEXT, odd=False))
    def test_every_json_value_is_accepted_and_comes_back_equal(self, value: Any) -> None:
        text = encoded(value)

        assert json.loads(text) == value
        assert decode(text) == value
        assert decode(text.encode()) == value

    @given(json_values(WILD_TEXT, odd=True))
    def test_what_is_accepted_comes_back_equal_and_the_rest_is_a_payload_error(
        self, value: Any
    ) -> None:
        with suppress(PayloadError):
            text = encoded(value)
            assert decode(text) == json.loads(text) == value
            assert "\x00" not in text
            text.encode()

    @pytest.mark.parametrize(
        "value",
        [None, "", [], {}, 0, False, True, 1.5, -0.0, "é😀", 2**63, 10**300, 5e-324, 1.5e308],
    )
    def test_scalars_and_empty_values_are_payloads(self, value: object) -> None:
        assert stored(value) == value

    def test_the_six_characters_of_an_escaped_nul_are_ordinary_text(self) -> None:
        assert stored({"regex": "\\u0000"}) == {"regex": "\\u0000"}

    def test_tuples_and_named_tuples_are_written_as_lists(self) -> None:
        class Point(NamedTuple):
            x: int
            y: int

        assert stored({"a": (1, (2,)), "b": Point(3, 4)}) == {"a": [1, [2]], "b": [3, 4]}

    def test_any_mapping_is_written_as_an_object(self) -> None:
        assert stored(MappingProxyType({"a": OrderedDict(b=1)})) == {"a": {"b": 1}}

    def test_subclasses_of_text_and_numbers_are_written_as_their_plain_value(self) -> None:
        class Name(str):
            __slots__ = ()

            def __str__(self) -> str:
                return "something else"

        class Count(int):
            pass

        class Share(float):
            pass

        assert stored([Name("a"), Count(3), Share(0.5)]) == ["a", 3, 0.5]


class TestSpelledValues:
    def test_uuid_dates_times_and_spans_are_written_in_iso_form(self) -> None:
        value = {
            "id": UUID("12345678-1234-5678-1234-567812345678"),
            "day": date(2026, 2, 28),
            "time": time(9, 30),
            "at": datetime(2026, 2, 28, 9, 30, tzinfo=UTC),
            "elsewhere": datetime(2026, 2, 28, 9, 30, tzinfo=timezone(timedelta(hours=5.5))),
            "span": timedelta(days=1, seconds=2.5),
        }

        assert stored(value) == {
            "id": "12345678-1234-5678-1234-567812345678",
            "day": "2026-02-28",
            "time": "09:30:00",
            "at": "2026-02-28T09:30:00Z",
            "elsewhere": "2026-02-28T09:30:00+05:30",
            "span": "P1DT2.5S",
        }

    @given(st.timedeltas())
    def test_every_span_can_be_read_again(self, span: timedelta) -> None:
        assert msgspec.convert(stored(span), timedelta) == span

    @given(st.datetimes(timezones=st.just(UTC)))
    def test_every_aware_time_can_be_read_again(self, at: datetime) -> None:
        assert msgspec.convert(stored(at), datetime) == at

    @given(st.decimals(allow_nan=False, allow_infinity=False))
    def test_a_decimal_is_written_as_text_that_keeps_every_digit(self, number: Decimal) -> None:
        text = stored(number)

        assert isinstance(text, str)
        assert str(Decimal(text)) == str(number)

    def test_an_enum_is_written_as_its_value(self) -> None:
        class Colour(Enum):
            RED = "red"
            PAIR = (1, 2)

        class Level(IntEnum):
            HIGH = 3

        class Kind(StrEnum):
            NEW = "new"

        value = {"a": Colour.RED, "b": Colour.PAIR, "c": Level.HIGH, "d": Kind.NEW}
        assert stored(value) == {"a": "red", "b": [1, 2], "c": 3, "d": "new"}

    def test_enums_with_text_values_may_be_keys(self) -> None:
        class Kind(StrEnum):
            NEW = "new"

        class Colour(Enum):
            RED = "red"

        assert stored({Kind.NEW: 1, Colour.RED: 2}) == {"new": 1, "red": 2}

    def test_two_keys_that_become_one_are_refused(self) -> None:
        class Colour(Enum):
            RED = "red"

        error = refusal({"colours": {Colour.RED: 1, "red": 2}})

        assert error.path.startswith("$.colours")


class TestObjects:
    def test_a_dataclass_is_written_with_its_fields(self) -> None:
        @dataclasses.dataclass
        class Line:
            sku: str
            price: Decimal

        @dataclasses.dataclass(slots=True, frozen=True)
        class Basket:
            lines: list[Line]
            note: str | None = None

        assert stored(Basket([Line("a", Decimal("1.10"))])) == {
            "lines": [{"sku": "a", "price": "1.10"}],
            "note": None,
        }

    def test_an_attrs_object_is_written_with_its_fields(self) -> None:
        @attrs.frozen
        class Line:
            sku: str
            _hidden: int = 2

        assert stored([Line("a")]) == [{"sku": "a", "_hidden": 2}]

    def test_a_struct_is_written_with_its_encoded_names(self) -> None:
        class Line(msgspec.Struct, rename="camel"):
            unit_price: int

        class Basket(msgspec.Struct):
            first_line: Line = msgspec.field(name="first")

        assert stored(Basket(Line(3))) == {"first": {"unitPrice": 3}}

    def test_a_pydantic_model_is_written_with_its_aliases(self) -> None:
        class Line(pydantic.BaseModel):
            unit_price: Decimal = pydantic.Field(alias="unitPrice")

        class Basket(pydantic.BaseModel):
            lines: list[Line]

            @pydantic.computed_field
            def total(self) -> int:
                return 9

        basket = Basket(lines=[Line(unitPrice=Decimal("1.5"))])
        assert stored(basket) == {"lines": [{"unitPrice": "1.5"}]}

    def test_a_pydantic_root_model_is_written_as_its_root(self) -> None:
        class Numbers(pydantic.RootModel[list[int]]):
            pass

        assert stored({"numbers": Numbers([1, 2])}) == {"numbers": [1, 2]}

    def test_a_secret_of_pydantic_is_refused_and_not_shown(self) -> None:
        class Login(pydantic.BaseModel):
            password: pydantic.SecretStr

        secret = pydantic.SecretStr("hunter2")
        values: list[object] = [Login(password=secret), {"password": secret}]
        for value in values:
            error = refusal(value)
            assert error.path == "$.password"
            assert "SecretStr" in str(error)
            assert "hunter2" not in str(error)

    def test_the_payload_is_a_snapshot_of_the_moment(self) -> None:
        value = {"items": [1]}
        text = encoded(value)

        value["items"].append(2)

        assert text == '{"items":[1]}'

    def test_a_mapped_entity_is_refused_with_advice(self) -> None:
        error = refusal({"order": [Order(name="x")]})

        assert error.path == "$.order[0]"
        assert "mapped entity" in str(error)

    def test_an_entity_is_refused_however_it_was_mapped(self) -> None:
        class Base(MappedAsDataclass, DeclarativeBase):
            pass

        class Invoice(Base):
            __tablename__ = "invoices"
            id: Mapped[int] = mapped_column(primary_key=True)

        class Shipment:
            pass

        mappers = registry()
        mappers.map_imperatively(
            Shipment, Table("shipments", mappers.metadata, Column("id", Integer, primary_key=True))
        )

        for entity in (Invoice(id=1), Shipment()):
            assert "mapped entity" in str(refusal(entity))


class TestRefusals:
    @pytest.mark.parametrize(
        ("value", "path"),
        [
            (float("nan"), "$"),
            ({"x": float("nan")}, "$.x"),
            ({"x": [1, {"y": float("-inf")}]}, "$.x[1].y"),
            (Decimal("NaN"), "$"),
            ([Decimal("sNaN")], "$[0]"),
            ([Decimal("Infinity")], "$[0]"),
        ],
    )
    def test_not_a_number_and_infinity_are_refused_with_their_path(
        self, value: object, path: str
    ) -> None:
        assert refusal(value).path == path

    @pytest.mark.parametrize(
        ("value", "path"),
        [
            ("\x00", "$"),
            ({"a": ["\\u0000", "b\x00c"]}, "$.a[1]"),
            ({"a\x00b": 1}, "$.a\\x00b"),
            ("\ud800", "$"),
            ({"a": {"b": "x\udfff"}}, "$.a.b"),
            ({"\ud800": 1}, "$.\\ud800"),
            (["\ud83d\ude00"], "$[0]"),
        ],
    )
    def test_nul_and_surrogates_are_refused_with_their_path(self, value: object, path: str) -> None:
        error = refusal(value)

        assert error.path == path
        str(error).encode()

    @pytest.mark.parametrize(
        ("value", "path"),
        [
            ({1: 2}, "$[1]"),
            ({"a": {(1, 2): 3}}, "$.a[(1, 2)]"),
            ({None: 1}, "$[None]"),
            ({b"a": 1}, "$[b'a']"),
        ],
    )
    def test_a_key_that_is_not_text_is_refused(self, value: object, path: str) -> None:
        error = refusal(value)

        assert error.path == path
        assert "a key must be text" in str(error)

    @pytest.mark.parametrize(
        ("value", "advice"),
        [
            ({1, 2}, "sorted list"),
            (frozenset({1}), "sorted list"),
            (b"x", "base64"),
            (bytearray(b"x"), "base64"),
            (object(), "object is not JSON"),
            (1j, "complex is not JSON"),
            (deque([1]), "deque is not JSON"),
            (range(3), "range is not JSON"),
            (iter([1]), "not JSON"),
            (int, "type is not JSON"),
            (Order, "is not JSON"),
            (datetime(2026, 1, 1), "without time zone"),  # noqa: DTZ001 - that is the point
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_other_types_are_refused_with_their_name_and_advice(
        self, value: object, advice: str
    ) -> None:
        error = refusal({"x": [value]})

        assert error.path == "$.x[0]"
        assert advice in str(error)

    @pytest.mark.parametrize("digits", [4_301, 5_000, 200_000])
    def test_an_integer_too_long_to_be_read_again_is_refused(self, digits: int) -> None:
        error = refusal({"n": [10 ** (digits - 1)]})

        assert error.path == "$.n[0]"
        assert "4,300 digits" in str(error)

    def test_an_integer_of_4300_digits_is_accepted(self) -> None:
        assert stored(10**4299) == 10**4299

    def test_a_negative_integer_that_is_accepted_can_be_read_again(self) -> None:
        assert decode(encoded(-(10**4299))) == -(10**4299)

    def test_what_contains_itself_is_refused(self) -> None:
        around: list[object] = []
        around.append({"again": around})

        assert "within itself" in str(refusal(around))

    def test_a_loop_through_objects_is_refused(self) -> None:
        @dataclasses.dataclass
        class Node:
            other: Node | None = None

        node = Node()
        node.other = node

        assert "within itself" in str(refusal(node))

    def test_nesting_is_counted_to_the_limit_and_not_beyond(self) -> None:
        assert stored(nested(100)) == nested(100)
        assert "nested too deeply" in str(refusal(nested(101)))

    @pytest.mark.parametrize("depth", [1_000, 6_000, 100_000])
    def test_absurd_nesting_is_refused_like_any_other(self, depth: int) -> None:
        assert "nested too deeply" in str(refusal(nested(depth)))

    def test_the_deepest_nesting_that_can_be_configured_can_be_written(self) -> None:
        value: object = 1
        for _ in range(200):
            value = MappingProxyType({"a": value})

        assert encoded(value, max_depth=200).count("{") == 200

    def test_size_is_counted_in_bytes_of_utf8(self) -> None:
        assert encoded("é" * 49, max_bytes=100) == '"' + "é" * 49 + '"'
        error = refusal("é" * 50, max_bytes=100)

        assert isinstance(error, PayloadTooLarge)
        assert (error.size, error.limit) == (102, 100)

    def test_headers_are_named_in_their_own_errors(self) -> None:
        with pytest.raises(PayloadError) as caught:
            encode({"a": "\ud800"}, max_bytes=10, max_depth=2, field="headers")

        assert (caught.value.field, caught.value.path) == ("headers", "$.a")

    def test_the_error_does_not_repeat_a_very_long_or_unprintable_key(self) -> None:
        for value in ({"x" * 100_000: float("nan")}, {"\ud800\n": float("nan")}):
            text = str(refusal(value))
            assert len(text) < 1_000
            assert text.isprintable()


class Failing(Mapping[str, object]):
    """A mapping of the user's own that can't be read."""

    def __getitem__(self, name: str) -> object:
        raise LookupError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


class TestFailingObjects:
    def test_a_field_that_raises_is_a_payload_error_with_the_cause(self) -> None:
        class Lazy:
            def __get__(self, owner: object, kind: type | None = None) -> int:
                raise ConnectionError("secret address")

        @dataclasses.dataclass
        class Report:
            total: int

        Report.total = Lazy()  # type: ignore[assignment]  # a descriptor, as lazy attributes are
        report = object.__new__(Report)

        error = refusal({"report": report})

        assert error.path == "$.report"
        assert isinstance(error.__cause__, ConnectionError)
        assert "secret" not in str(error)

    def test_a_property_of_a_pydantic_model_that_raises_is_a_payload_error(self) -> None:
        class Report(pydantic.BaseModel):
            total: int

            @pydantic.field_serializer("total")
            def written(self, total: int) -> int:
                raise ZeroDivisionError

        assert refusal([Report(total=1)]).path == "$[0]"

    def test_a_mapping_that_raises_is_a_payload_error(self) -> None:
        error = refusal({"a": Failing()})

        assert isinstance(error.__cause__, LookupError)

    @pytest.mark.parametrize("name", ["__class__", "model_dump", "__len__"])
    def test_an_object_that_raises_wherever_it_is_touched_is_a_payload_error(
        self, name: str
    ) -> None:
        def touched(self: object) -> object:
            raise RuntimeError

        broken = type("Broken", (), {name: property(touched)})()

        refusal([broken])

    def test_an_interrupt_is_not_swallowed(self) -> None:
        class Interrupting(dict[str, object]):
            def items(self) -> Any:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            encoded(Interrupting(a=1))


class TestDecode:
    @pytest.mark.parametrize(
        "text", ["", "{", "nope", "1e400", "1" * 5_000, "[" * 100_000 + "]" * 100_000]
    )
    def test_what_can_not_be_read_is_a_decode_error(self, text: str) -> None:
        with pytest.raises(DecodeError):
            decode(text)

    def test_bytes_that_are_not_utf8_are_a_decode_error(self) -> None:
        with pytest.raises(DecodeError):
            decode(b'"\xff"')

    @given(st.binary())
    def test_no_other_error_comes_out(self, text: bytes) -> None:
        with suppress(DecodeError):
            decode(text)
