"""From a row of the log to the event that a handler gets."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Generic, TypedDict, TypeVar
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox import Event
from sa_outbox.consumer.handler.delivery import InFlight
from sa_outbox.errors import DecodeError
from sa_outbox.event.codec import encode_plain
from sa_outbox.event.event import Json, stored_text
from sa_outbox.event.stored import load_event, load_to_forward, load_whole
from sa_outbox.event.types import event_type, upcaster
from sa_outbox.event.wanted import wanted

T = TypeVar("T")
EVENT_ID = UUID(int=9)
REGISTERED, OTHER = "test_item.registered", "test_item.other"
NO_UPCASTER = "test_item.no_upcaster"


def row(
    payload: str = "{}",
    headers: str = "{}",
    *,
    event_type: str = "test_item.unregistered",
    run_at: float | None = None,
    created_at: float = 0.0,
) -> tuple[Any, ...]:
    """As ``sql.log.reads`` selects it."""
    columns = (7, EVENT_ID, event_type, "key", "tenant", payload, headers)
    return (*columns, run_at, 5, created_at)


@dataclasses.dataclass(frozen=True)
class AsDataclass:
    order_id: int
    price: Decimal = Decimal(0)


@attrs.frozen
class AsAttrs:
    order_id: int
    price: Decimal = Decimal(0)


class AsStruct(msgspec.Struct):
    order_id: int
    price: Decimal = Decimal(0)


class AsPydantic(pydantic.BaseModel):
    order_id: int
    price: Decimal = Decimal(0)


class AsTypedDict(TypedDict):
    order_id: int


@event_type("test_item.registered", version=2)
@dataclasses.dataclass(frozen=True)
class Registered:
    order_id: int


@upcaster("test_item.registered", since=1)
def renamed(payload: dict[str, Json]) -> Json:
    return {"order_id": payload["id"]}


class Base:
    pass


@event_type(OTHER)
@dataclasses.dataclass(frozen=True)
class Other(Base):
    order_id: int


@event_type(NO_UPCASTER, version=2)
@dataclasses.dataclass(frozen=True)
class NoUpcaster:
    order_id: int


class Card(msgspec.Struct, tag=True):
    number: str


class Cash(msgspec.Struct, tag=True):
    amount: int


@dataclasses.dataclass
class Page(Generic[T]):
    item: T


class TestItem:
    def test_it_knows_its_row(self) -> None:
        item = InFlight(row(), "key", attempts=2, state="parked")

        assert (item.position, item.event_id, item.event_type) == (7, EVENT_ID, row()[2])
        assert (item.key, item.lane) == ("key", "key")
        assert (item.attempts, item.state, item.crashes, item.tries) == (2, "parked", 0, 0)
        assert (item.outcome, item.failure, item.single) == ("done", None, False)


class TestEvent:
    def test_everything_of_the_row_is_in_it(self) -> None:
        event = load_event(
            row('{"a": [1]}', '{"x": "y", "version": 3}', run_at=10.5, created_at=1e9), None
        )

        assert isinstance(event, Event)
        assert (event.position, event.event_id, event.event_type) == (7, EVENT_ID, row()[2])
        assert (event.key, event.tenant, event.priority) == ("key", "tenant", 5)
        assert event.payload == {"a": [1]}
        assert event.headers == {"x": "y", "version": 3}
        assert event.run_at == datetime(1970, 1, 1, 0, 0, 10, 500_000, tzinfo=UTC)
        assert event.created_at == datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)

    @pytest.mark.parametrize("text", ["null", "5", '"x"', "[]", "true", "{}", "1.5"])
    def test_a_payload_may_be_any_json(self, text: str) -> None:
        assert encode_plain(load_event(row(text), None).payload) == text

    def test_each_attempt_gets_an_event_of_its_own(self) -> None:
        stored = row('{"lines": [{"sku": "a"}]}', '{"x": "y"}')

        one, other = load_event(stored, None), load_event(stored, None)
        one.payload["lines"][0]["sku"] = "changed"
        one.payload["lines"].append("more")

        assert other.payload == {"lines": [{"sku": "a"}]}
        assert load_event(stored, None).payload == other.payload
        assert one.headers is not other.headers

    def test_each_attempt_gets_an_object_of_its_own(self) -> None:
        stored = row('{"order_id": 1}')

        one, other = load_event(stored, wanted(AsStruct)), load_event(stored, wanted(AsStruct))
        one.payload.order_id = 5

        assert other.payload == AsStruct(1)


class TestPayloadClass:
    @pytest.mark.parametrize("cls", [AsDataclass, AsAttrs, AsStruct, AsPydantic])
    def test_json_becomes_an_object_of_the_annotated_class(self, cls: Callable[..., Any]) -> None:
        text = '{"order_id": 1, "price": "1.50"}'

        payload = load_event(row(text), wanted(cls)).payload

        assert payload == cls(order_id=1, price=Decimal("1.50"))

    @pytest.mark.parametrize(
        ("cls", "text", "expected"),
        [
            (int, "5", 5),
            (float, "5", 5.0),
            (str, '"x"', "x"),
            (list, "[1]", [1]),
            (datetime, '"2026-01-02T03:04:05Z"', datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
            (UUID, f'"{EVENT_ID}"', EVENT_ID),
        ],
    )
    def test_it_may_be_a_plain_one(self, cls: type, text: str, expected: object) -> None:
        assert load_event(row(text), wanted(cls)).payload == expected

    def test_a_registered_type_is_loaded_with_its_upcasters(self) -> None:
        name = "test_item.registered"

        old = load_event(row('{"id": 1}', event_type=name), wanted(Registered)).payload
        new = load_event(
            row('{"order_id": 2}', '{"version": 2}', event_type=name), wanted(Registered)
        ).payload

        assert (old, new) == (Registered(1), Registered(2))

    def test_of_a_typed_dict_it_stays_a_dict(self) -> None:
        payload = load_event(row('{"order_id": 1}'), wanted(AsTypedDict)).payload

        assert payload == {"order_id": 1}

    @pytest.mark.parametrize("cls", [AsDataclass, AsAttrs, AsStruct, AsPydantic, int, UUID])
    @pytest.mark.parametrize("text", ['{"order": 1}', '{"order_id": "x"}', "null", "[]", '"x"'])
    def test_what_does_not_fit_is_a_decode_error_without_the_payload(
        self, cls: type, text: str
    ) -> None:
        with pytest.raises(DecodeError, match=cls.__qualname__) as caught:
            load_event(row(text), wanted(cls))

        assert "order_id" not in str(caught.value)

    def test_a_handler_may_have_a_class_of_its_own_for_a_registered_type(self) -> None:
        old = load_event(row('{"id": 1}', event_type=REGISTERED), wanted(AsDataclass))
        new = load_event(row('{"order_id": 1, "price": "2"}', event_type=OTHER), wanted(AsStruct))

        assert old.payload == AsDataclass(1)
        assert new.payload == AsStruct(1, Decimal(2))

    def test_of_a_union_it_is_the_class_registered_for_the_event_type(self) -> None:
        either = wanted(Registered | Other)

        one = load_event(row('{"id": 1}', event_type=REGISTERED), either).payload
        other = load_event(row('{"order_id": 1}', event_type=OTHER), either).payload

        assert (one, other) == (Registered(1), Other(1))

    def test_of_a_union_with_a_dict_the_rest_stays_json(self) -> None:
        either = wanted(Registered | dict[str, Any])

        assert load_event(row('{"id": 1}', event_type=REGISTERED), either).payload == Registered(1)
        assert load_event(row('{"x": 1}'), either).payload == {"x": 1}

    def test_of_a_union_of_tagged_structs_it_is_the_one_that_the_tag_names(self) -> None:
        text = '{"type": "Cash", "amount": 3}'

        assert load_event(row(text), wanted(Card | Cash)).payload == Cash(3)

    def test_of_a_base_class_it_is_the_registered_one(self) -> None:
        text = row('{"order_id": 1}', event_type=OTHER)

        assert load_event(text, wanted(Base)).payload == Other(1)

    def test_of_a_generic_class_it_is_one_with_these_arguments(self) -> None:
        text = f'{{"item": "{EVENT_ID}"}}'
        assert load_event(row(text), wanted(Page[UUID])).payload == Page(EVENT_ID)

    def test_a_name_that_only_type_checkers_resolve_is_that_of_the_registered_class(self) -> None:
        named = wanted("OtherModule.Registered | Elsewhere")

        assert load_event(row('{"id": 1}', event_type=REGISTERED), named).payload == Registered(1)
        assert load_event(row('{"order_id": 1}', event_type=OTHER), named).payload == {
            "order_id": 1
        }


class TestWithoutAClass:
    """A class that is registered somewhere changes nothing for who does not name it."""

    @pytest.mark.parametrize("load", [load_event, load_whole, load_to_forward])
    @pytest.mark.parametrize("argument", [Any, object, dict, dict[str, Any], Json, "Elsewhere"])
    def test_the_payload_of_a_registered_type_is_json(
        self, load: Callable[..., Event[Any]], argument: Any
    ) -> None:
        stored = row('{"order_id": 1}', event_type=OTHER)

        assert load(stored, wanted(argument)).payload == {"order_id": 1}

    def test_nor_does_it_have_to_fit(self) -> None:
        assert load_event(row('{"x": 1}', event_type=OTHER), None).payload == {"x": 1}

    def test_it_stays_as_it_is_stored_until_it_is_read(self) -> None:
        event = load_to_forward(row('{"order_id": 1.10}', event_type=OTHER), None)

        assert stored_text(event) == '{"order_id": 1.10}'

    @pytest.mark.parametrize("load", [load_event, load_whole, load_to_forward])
    def test_older_versions_are_upgraded_and_say_so(self, load: Callable[..., Event[Any]]) -> None:
        event = load(row('{"id": 1}', '{"version": 1, "x": "y"}', event_type=REGISTERED), None)

        assert event.payload == {"order_id": 1}
        assert event.headers == {"version": 2, "x": "y"}

    def test_a_version_without_an_upcaster_stays_as_it_is(self) -> None:
        event = load_event(row('{"id": 1}', '{"version": 1}', event_type=NO_UPCASTER), None)

        assert (event.payload, event.headers["version"]) == ({"id": 1}, 1)

    def test_a_newer_version_stays_as_it_is(self) -> None:
        event = load_event(row('{"new": 1}', '{"version": 3}', event_type=REGISTERED), None)

        assert (event.payload, event.headers["version"]) == ({"new": 1}, 3)


class TestUnreadableRows:
    @pytest.mark.parametrize("text", ["", "{", "{'a': 1}", "NaN", "1e999999", "[" * 100_000])
    def test_a_payload(self, text: str) -> None:
        event = load_event(row(text), None)

        for _ in range(2):  # each time: a handler may catch the first
            with pytest.raises(DecodeError):
                _ = event.payload
        with pytest.raises(DecodeError):
            load_event(row(text), wanted(AsDataclass))
        with pytest.raises(DecodeError):
            load_whole(row(text), None)

    @pytest.mark.parametrize("load", [load_event, load_whole, load_to_forward])
    @pytest.mark.parametrize("text", ["", "[]", "null", '"x"', "5"])
    def test_headers(self, text: str, load: Callable[..., Event[Any]]) -> None:
        with pytest.raises(DecodeError):
            load(row("{}", text), None)

    @pytest.mark.parametrize("text", ["{", '{"a": 1e999999}', '{"a": ' + "[" * 100_000])
    def test_headers_that_begin_well(self, text: str) -> None:
        with pytest.raises(DecodeError):
            _ = load_event(row("{}", text), None).headers
        with pytest.raises(DecodeError):
            load_event(row('{"order_id": 1}', text, event_type="test_item.registered"), None)
        for load in (load_whole, load_to_forward):
            with pytest.raises(DecodeError):
                load(row("{}", text), None)

    @pytest.mark.parametrize("seconds", [math.inf, -math.inf, math.nan, 1e12, -1e12, 1e300])
    def test_a_time_that_python_can_not_tell(self, seconds: float) -> None:
        with pytest.raises(DecodeError, match="outside Python's range"):
            load_event(row(run_at=seconds), None)
        with pytest.raises(DecodeError, match="outside Python's range"):
            load_event(row(created_at=seconds), None)

    def test_a_version_newer_than_this_process_knows(self) -> None:
        stored = row('{"order_id": 1}', '{"version": 3}', event_type="test_item.registered")

        with pytest.raises(DecodeError, match="version 3, this process knows 2"):
            load_event(stored, wanted(Registered))

    @given(st.text(), st.text(), st.floats() | st.none(), st.floats())
    def test_no_other_error_than_that_one(
        self, payload: str, headers: str, run_at: float | None, created_at: float
    ) -> None:
        stored = row(payload, headers, run_at=run_at, created_at=created_at)

        try:
            event = load_event(stored, wanted(AsDataclass))
        except DecodeError:
            return
        assert isinstance(event.payload, AsDataclass)


class TestUnread:
    """What nobody has asked for is as it is stored."""

    def test_what_is_read_late_is_what_is_read_at_once(self) -> None:
        given = row('{"n": 1}', '{"version": 2, "note": "x"}', run_at=5.0, created_at=6.0)
        unread, read = load_event(given, None), load_whole(given, None)

        fields = ("event_id", "event_type", "key", "tenant", "run_at", "priority", "position")
        for name in (*fields, "created_at", "headers"):
            assert getattr(unread, name) == getattr(read, name), name
        assert stored_text(unread) == '{"n": 1}'
        assert stored_text(read) is None

    def test_whoever_asks_gets_the_payload_and_may_change_it(self) -> None:
        event = load_to_forward(row('{"n": 1, "secret": "x"}'), None)

        del event.payload["secret"]

        assert event.payload == {"n": 1}
        assert stored_text(event) is None, "it would have the secret still"

    def test_it_stays_as_it_was_and_can_be_pickled(self) -> None:
        event = load_to_forward(row('{"n": 1}'), None)

        with pytest.raises(AttributeError):
            event.tenant = "other"
        again = pickle.loads(pickle.dumps(event))

        assert type(again) is Event
        assert stored_text(again) == '{"n": 1}'
        assert again.payload == event.payload == {"n": 1}

    def test_what_was_changed_is_what_a_copy_has(self) -> None:
        event = load_event(row('{"n": 1}', '{"x": "y"}', created_at=1e9), None)
        event.payload["n"] = 2

        for again in (copy.copy(event), copy.deepcopy(event), pickle.loads(pickle.dumps(event))):
            assert again.payload == {"n": 2}
            assert (again.headers, again.created_at) == (event.headers, event.created_at)

    def test_the_headers_of_two_copies_are_read_apart(self) -> None:
        event = load_event(row("{}", '{"x": "y"}'), None)
        again = copy.copy(event)

        assert again.headers == event.headers == {"x": "y"}
        assert again._headers is not event._headers

    def test_what_can_not_be_read_is_an_error_when_it_is_asked_for(self) -> None:
        event = load_to_forward(row("[" * 100_000 + "]" * 100_000), None)

        with pytest.raises(DecodeError):
            _ = event.payload

    def test_an_older_version_is_upgraded_at_once(self) -> None:
        event = load_to_forward(row('{"id": 1}', event_type="test_item.registered"), None)

        assert event.payload == {"order_id": 1}
        assert stored_text(event) is None
