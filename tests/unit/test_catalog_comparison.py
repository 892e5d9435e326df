"""What changed between a committed catalogue and a program, and whom it breaks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import field, make_dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from itertools import product
from typing import Any, Literal
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest

from sa_outbox import Event, Outbox
from sa_outbox.catalog import Change
from sa_outbox.catalog.comparison import changes
from sa_outbox.catalog.containment import Comparison, root_of
from sa_outbox.catalog.contents import contents_of
from sa_outbox.catalog.dialect import components_of
from sa_outbox.catalog.document import as_text, described
from sa_outbox.catalog.payload_schema import schemas_of
from sa_outbox.errors import ConfigError
from sa_outbox.event.codec import decode, encode
from sa_outbox.event.objects import object_of
from sa_outbox.event.types import EventTypes
from sa_outbox.relay import CloudEvents
from sa_outbox.relay.kafka import Kafka

NAME = "order.placed"
REQUIRED: Any = object()
"""A field without a default."""

Fields = dict[str, tuple[Any, Any]]


def of_dataclass(name: str, fields: Fields) -> type:
    return make_dataclass(
        name,
        [
            (each, kind) if default is REQUIRED else (each, kind, field(default=default))
            for each, (kind, default) in fields.items()
        ],
        kw_only=True,
    )


def of_attrs(name: str, fields: Fields) -> type:
    made = {
        each: attrs.field(type=kind)
        if default is REQUIRED
        else attrs.field(type=kind, default=default)
        for each, (kind, default) in fields.items()
    }
    return attrs.make_class(name, made, kw_only=True)


def of_msgspec(name: str, fields: Fields) -> type:
    return msgspec.defstruct(
        name,
        [
            (each, kind) if default is REQUIRED else (each, kind, default)
            for each, (kind, default) in fields.items()
        ],
        kw_only=True,
    )


def of_pydantic(name: str, fields: Fields) -> type:
    made: Any = {
        each: (kind, ... if default is REQUIRED else default)
        for each, (kind, default) in fields.items()
    }
    found: type = pydantic.create_model(name, **made)
    return found


KINDS: list[Callable[[str, Fields], type]] = [of_dataclass, of_attrs, of_msgspec, of_pydantic]


async def read(event: Event) -> None: ...


def program(
    cls: type | None,
    *,
    version: int = 1,
    upcast: tuple[int, ...] = (),
    on: str | list[str] = "order.*",
    relay: str | None = None,
    cloud: bool = False,
) -> tuple[Outbox, EventTypes]:
    types, outbox = EventTypes(), Outbox()
    if cls is not None:
        types.register(NAME, version=version)(cls)
    for since in upcast:
        types.upcast(NAME, since=since)(lambda payload: payload)
    outbox.listener("billing", on=on)(read)
    if relay is not None:
        envelope = CloudEvents("/shop") if cloud else None
        outbox.relay("kafka", Kafka("broker:9092"), on=on, to=relay, envelope=envelope)
    return outbox, types


def compared(old: tuple[Outbox, EventTypes], new: tuple[Outbox, EventTypes]) -> list[Change]:
    committed = described(contents_of(*old), title=None, version="1.0.0")
    # Through the file, as a program finds it.
    return changes(json.loads(as_text(committed)), contents_of(*new))


def breaking(found: list[Change]) -> set[tuple[str | None, str]]:
    return {(each.protects, each.what) for each in found if each.protects is not None}


@pytest.fixture(params=KINDS, ids=lambda each: each.__name__.removeprefix("of_"))
def make(request: pytest.FixtureRequest) -> Callable[..., type]:
    def made(name: str = "OrderPlaced", **fields: Any) -> type:
        whole = {
            name: each if isinstance(each, tuple) else (each, REQUIRED)
            for name, each in fields.items()
        }
        cls: type = request.param(name, whole)
        return cls

    return made


Make = Callable[..., type]


def test_the_program_that_was_committed_has_no_changes(make: Make) -> None:
    same = make(order_id=int, note=(str | None, None), lines=list[dict[str, int]])

    assert compared(program(same), program(same)) == []


def test_a_required_field_that_is_new_breaks_what_is_stored(make: Make) -> None:
    (found,) = compared(program(make(a=int)), program(make(a=int, b=int)))

    assert (found.protects, found.what) == (
        "stored",
        "$.b: required, and stored events may lack it",
    )
    assert found.breaks == ("billing (as JSON)",)
    assert found.instead == "give it a default"
    assert found.fix is not None
    assert 'version=2 and @upcaster("order.placed", since=1)' in found.fix


def test_an_optional_field_that_is_new_breaks_nothing_and_is_listed(make: Make) -> None:
    found = compared(program(make(a=int)), program(make(a=int, b=(int, 1))))

    assert found == [Change(NAME, "$.b: new, optional")]


def test_a_default_that_is_gone_breaks_what_is_stored(make: Make) -> None:
    found = compared(program(make(a=int, b=(int, 1))), program(make(a=int, b=int)))

    assert breaking(found) == {("stored", "$.b: required, and stored events may lack it")}


def test_a_default_that_is_new_breaks_nothing(make: Make) -> None:
    found = compared(program(make(a=int, b=int)), program(make(a=int, b=(int, 1))))

    assert found == [Change(NAME, "$.b: now optional")]


def test_a_required_field_that_is_gone_breaks_consumers_of_the_last_release(make: Make) -> None:
    found = compared(program(make(a=int, b=int)), program(make(a=int)))

    assert breaking(found) == {
        ("deploy", "$.b: no longer written, and required by the old release")
    }


def test_a_field_with_a_default_can_go(make: Make) -> None:
    found = compared(program(make(a=int, b=(int, 1))), program(make(a=int)))

    assert found == [Change(NAME, "$.b: gone")]


def test_a_field_that_was_renamed_breaks_both_and_is_recognised(make: Make) -> None:
    found = compared(program(make(total=int)), program(make(amount=int)))

    assert breaking(found) == {
        ("stored", "$.amount: required, and stored events may lack it"),
        (
            "deploy",
            "$.total: no longer written, and required by the old release. Renamed to amount?",
        ),
    }


def test_a_type_that_is_narrower_breaks_what_is_stored(make: Make) -> None:
    found = compared(program(make(a=int | None)), program(make(a=int)))

    assert breaking(found) == {("stored", "$.a: stored as null, read as integer")}


def test_a_type_that_is_wider_breaks_consumers_of_the_last_release(make: Make) -> None:
    found = compared(program(make(a=int)), program(make(a=int | None)))

    assert breaking(found) == {
        ("deploy", "$.a: now written as null, read by the old release as integer")
    }


def test_a_value_that_is_gone_breaks_what_is_stored(make: Make) -> None:
    found = compared(program(make(a=Literal["x", "y"])), program(make(a=Literal["x"])))

    assert breaking(found) == {
        ("stored", '$.a: stored events may have "y", which is no longer accepted')
    }


def test_a_value_that_is_new_breaks_consumers_of_the_last_release(make: Make) -> None:
    before, after = (Enum("Colour", each) for each in ({"RED": "red"}, {"RED": "red", "B": "b"}))

    found = compared(program(make(a=before)), program(make(a=after)))

    assert breaking(found) == {
        ("deploy", '$.a: may now be "b", which the old release does not know')
    }


def test_what_is_nested_is_compared_with_its_path(make: Make) -> None:
    before = make(lines=list[make("Line", sku=str)])  # type: ignore[misc]  # made at run time
    after = make(lines=list[make("Line", sku=int)])  # type: ignore[misc]

    found = compared(program(before), program(after))

    assert {each.what.partition(":")[0] for each in found} == {"$.lines[].sku"}


def test_a_class_that_allows_no_other_fields_breaks_on_stored_ones() -> None:
    class Before(pydantic.BaseModel):
        a: int
        b: int = 1

    class After(pydantic.BaseModel, extra="forbid"):
        a: int

    found = compared(program(Before), program(After))

    assert breaking(found) == {
        ("stored", "$: no other fields are allowed now, and stored events may have some"),
        ("stored", "$.b: stored events may have it, and the class allows no other fields"),
    }


def test_a_field_that_is_new_breaks_an_old_release_that_allows_no_other() -> None:
    class Before(msgspec.Struct, forbid_unknown_fields=True):
        a: int

    class After(msgspec.Struct):
        a: int
        b: int = 1

    found = compared(program(Before), program(After))

    assert breaking(found) == {
        ("deploy", "$.b: now written, and the old release allows no other fields")
    }


def test_a_field_that_may_be_left_unset_is_not_always_written() -> None:
    class Before(msgspec.Struct):
        a: int

    class After(msgspec.Struct):
        a: int | msgspec.UnsetType = msgspec.UNSET

    found = compared(program(Before), program(After))

    assert breaking(found) == {
        ("deploy", "$.a: no longer always written, and required by the old release")
    }


def test_what_pydantic_computes_is_not_stored_and_does_not_count() -> None:
    class Before(pydantic.BaseModel, extra="forbid"):
        a: int

    class After(pydantic.BaseModel, extra="forbid"):
        a: int

        @pydantic.computed_field  # type: ignore[prop-decorator]  # mypy knows no such property
        @property
        def twice(self) -> int:
            return 2 * self.a

    assert compared(program(Before), program(After)) == []


def test_the_library_may_change_when_the_payload_does_not() -> None:
    classes = [make("OrderPlaced", {"a": (int, REQUIRED), "b": (str, "")}) for make in KINDS]

    for before, after in product(classes, classes):
        assert compared(program(before), program(after)) == []


def test_a_limit_that_is_narrower_breaks_what_is_stored() -> None:
    class Before(pydantic.BaseModel):
        a: int

    class After(pydantic.BaseModel):
        a: int = pydantic.Field(ge=1)

    found = compared(program(Before), program(After))

    assert breaking(found) == {("stored", "$.a: stored with no minimum, read with minimum 1")}


def test_a_type_within_itself_is_compared_once() -> None:
    class Tree(msgspec.Struct):
        value: int
        left: Tree | None = None

    class Other(msgspec.Struct):
        value: str
        left: Other | None = None

    # The names in annotations are looked up in the module.
    globals().update(Tree=Tree, Other=Other)
    found = compared(program(Tree), program(Other))

    assert {each.what.partition(":")[0] for each in found} == {"$.value"}


def test_a_new_version_with_its_upcaster_breaks_nothing(make: Make) -> None:
    found = compared(
        program(make(a=int), relay="orders"),
        program(make(b=str), version=2, upcast=(1,), relay="orders"),
    )

    assert found == [
        Change(
            NAME,
            "version 1 is now 2: deploy consumers before producers; receivers of relay kafka get "
            "the new form",
        )
    ]


def test_a_new_version_without_its_upcaster_breaks_what_is_stored(make: Make) -> None:
    found = compared(program(make(a=int)), program(make(a=int), version=2))

    assert breaking(found) == {
        ("stored", "stored events of version 1 can't be read: no upcaster from 1")
    }


def test_an_upcaster_that_is_gone_breaks_what_is_stored(make: Make) -> None:
    found = compared(
        program(make(a=int), version=3, upcast=(1, 2)),
        program(make(a=int), version=3, upcast=(2,)),
    )

    assert breaking(found) == {
        ("stored", "stored events of version 1 can't be read: no upcaster from 1")
    }


def test_a_gap_of_upcasters_names_the_one_that_is_missing(make: Make) -> None:
    found = compared(program(make(a=int)), program(make(a=int), version=3, upcast=(1,)))

    assert [each.fix for each in found if each.fix] == [
        '@upcaster("order.placed", since=2), until retention has deleted every event of version 1'
    ]


def test_a_version_that_goes_back_breaks_what_is_stored(make: Make) -> None:
    found = compared(program(make(a=int), version=2, upcast=(1,)), program(make(a=int)))

    assert breaking(found) == {("stored", "stored events have version 2, and the program knows 1")}


def test_a_class_that_is_gone_breaks_whoever_still_reads_the_event_type(make: Make) -> None:
    found = compared(program(make(a=int), on=NAME), program(None, on=NAME))
    assert {each.protects for each in found} == {"deploy"}

    found = compared(program(make(a=int), version=2, upcast=(1,)), program(None))
    assert [(each.protects, each.breaks) for each in found] == [("stored", ("billing (as JSON)",))]


def test_a_class_that_is_gone_makes_no_difference_to_whoever_gets_json(make: Make) -> None:
    assert breaking(compared(program(make(a=int)), program(None))) == set()


def test_a_class_that_is_gone_breaks_a_pattern_whose_handler_asks_for_it(make: Make) -> None:
    old, new = program(make(a=int)), program(None)
    for outbox, types in (old, new):
        cls = types.class_of(NAME) or make(b=int)

        async def typed(event: Any) -> None: ...

        typed.__annotations__["event"] = Event[cls]  # type: ignore[valid-type]  # made at run time
        outbox.listener("typed", on="order.*")(typed)

    assert {each.protects for each in compared(old, new)} == {"stored"}


def test_an_event_type_that_nobody_reads_can_go(make: Make) -> None:
    found = compared(program(make(a=int), on="user.joined"), program(None, on="user.joined"))

    assert breaking(found) == set()
    assert [each.subject for each in found] == [NAME]


def test_a_class_for_what_was_only_a_name_is_listed(make: Make) -> None:
    found = compared(program(None, on=NAME), program(make(a=int), on=NAME))

    assert found == [Change(NAME, "it has a class now; events stored before had none")]


def test_only_those_who_read_the_event_type_are_named(make: Make) -> None:
    old, new = program(make(a=int)), program(make(a=str))
    for outbox, _ in (old, new):
        outbox.listener("mail", on="user.*")(read)

    assert {each.breaks for each in compared(old, new)} == {("billing (as JSON)",)}


def test_a_class_that_a_handler_asks_for_is_named_with_it(make: Make) -> None:
    old, new = program(make(a=int)), program(make(a=str))
    for outbox, types in (old, new):
        cls = types.class_of(NAME)

        async def typed(event: Any) -> None: ...

        typed.__annotations__["event"] = Event[cls]  # type: ignore[valid-type]  # made at run time
        outbox.listener("typed", on=NAME)(typed)

    assert {each.breaks for each in compared(old, new)} == {
        ("billing (as JSON)", "typed (as OrderPlaced)")
    }


def test_receivers_of_a_relay_see_new_events_but_none_that_are_read_from_the_log(
    make: Make,
) -> None:
    found = compared(program(make(a=int), relay="orders"), program(make(a=str), relay="orders"))

    assert {(each.protects, each.breaks) for each in found} == {
        ("stored", ("billing (as JSON)",)),
        ("deploy", ("billing (as JSON)", "relay kafka")),
    }


def test_a_relay_that_sends_elsewhere_breaks_its_receivers(make: Make) -> None:
    cls = make(a=int)
    assert breaking(compared(program(cls, relay="orders"), program(cls, relay="sales"))) == {
        ("receivers", "its address was orders and is sales")
    }
    assert breaking(compared(program(cls, relay="o"), program(cls, relay="o", cloud=True))) == {
        ("receivers", "its envelope was plain and is cloudevents-binary")
    }
    assert breaking(compared(program(cls, relay="orders"), program(cls))) == {
        ("receivers", "the relay is gone")
    }
    narrowed = program(cls)
    narrowed[0].relay("kafka", Kafka("broker:9092"), on="user.*", to="orders")
    assert breaking(compared(program(cls, relay="orders"), narrowed)) == {
        ("receivers", "it no longer forwards order.placed")
    }


def test_listeners_that_come_and_go_are_listed(make: Make) -> None:
    old, new = program(make(a=int)), program(make(a=int))
    old[0].listener("old", on="order.*")(read)
    new[0].listener("new", on="order.*")(read)

    assert {
        (each.protects, each.subject, each.what.partition(":")[0]) for each in compared(old, new)
    } == {
        (None, "old", "the listener is gone"),
        (None, "new", "new listener"),
    }


def test_a_listener_that_no_longer_reads_an_event_type_leaves_what_is_stored(make: Make) -> None:
    old, new = program(make(a=int)), program(make(a=int), on="user.*")
    (found,) = compared(old, new)

    assert (found.protects, found.breaks) == ("stored", ("billing",))
    assert found.what.startswith("it no longer reads order.placed: ")


def test_an_event_type_that_was_renamed_breaks_whoever_read_the_old_name(make: Make) -> None:
    cls = make(a=int)
    old, new = program(cls, on=NAME), (Outbox(), EventTypes())
    new[1].register("order.created")(cls)
    new[0].listener("billing", on="order.created")(read)

    found = compared(old, new)

    assert {each.subject for each in found if each.protects} == {"billing"}
    assert any("it now reads order.created: deploy consumers" in each.what for each in found)


def test_a_pattern_that_matches_as_before_is_listed(make: Make) -> None:
    found = compared(program(make(a=int)), program(make(a=int), on=["order.*", "!user.*"]))

    assert [(each.protects, each.subject) for each in found] == [(None, "billing")]


def test_a_class_that_is_closed_breaks_on_fields_of_earlier_releases() -> None:
    """They were removed when that broke nothing: stored events still have them."""

    class Before(pydantic.BaseModel):
        a: int

    class After(pydantic.BaseModel, extra="forbid"):
        a: int

    assert breaking(compared(program(Before), program(After))) == {
        ("stored", "$: no other fields are allowed now, and stored events may have some")
    }
    assert breaking(compared(program(After), program(Before))) == set()


@pytest.mark.parametrize("text", ["{}", '{"components": {"schemas": {}, "messages": {"a": {}}}}'])
def test_a_document_of_somebody_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not a catalogue that sa-outbox catalog has written"):
        changes(json.loads(text), contents_of(Outbox(), EventTypes()))


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


NOW = datetime.fromisoformat("2026-01-02T03:04:05+00:00")
SAMPLES: list[tuple[Any, list[Any]]] = [
    (int, [0, -7, 2**40]),
    (float, [0.5, 3.0]),
    (bool, [True]),
    (str, ["", "x"]),
    (Decimal, [Decimal("1.50")]),
    (datetime, [NOW]),
    (date, [NOW.date()]),
    (UUID, [UUID(int=1)]),
    (Colour, list(Colour)),
    (Literal["red"], ["red"]),
    (Literal["red", "blue", "green"], ["green"]),
    (Literal[1, 2], [1, 2]),
    (int | None, [1, None]),
    (str | None, ["x", None]),
    (datetime | None, [NOW, None]),
    (int | str, [1, "x"]),
    (list[int], [[], [1]]),
    (list[str], [["x"]]),
    (list[datetime], [[NOW]]),
    (set[int], [{1, 2}]),
    (tuple[int, str], [(1, "x")]),
    (tuple[int, ...], [(), (1, 2, 3)]),
    (dict[str, int], [{}, {"a": 1}]),
    (dict[str, Any], [{"a": [None, "x"]}]),
    (dict[str, str | None], [{"a": None}]),
    (list[dict[str, list[int]]], [[{"a": [1]}]]),
    (Any, [None, 1, "x", [1], {"a": 1}]),
]
"""Types of fields, with values of each."""


@pytest.mark.parametrize("kind", [of_dataclass, of_msgspec, of_pydantic], ids=lambda e: e.__name__)
def test_what_the_check_lets_pass_can_be_read(kind: Callable[[str, Fields], type]) -> None:
    """For each two types of a field: if nothing is said to break, each value that the one class
    has written is read by the other."""
    made = [(kind("Made", {"a": (each, REQUIRED)}), values) for each, values in SAMPLES]
    placed = []
    for cls, _ in made:
        both = schemas_of(NAME, cls)
        placed.append([components_of("a", each) for each in (both.reading, both.writing)])
    passed, wrong = 0, []
    for (old, (before, values)), (new, (after, _)) in product(enumerate(made), repeat=2):
        reads, writes = placed[new][0], placed[old][1]
        if Comparison(writes, reads).misfits(root_of("a", writes), root_of("a", reads)):
            continue
        passed += 1
        for value in values:
            stored = decode(encode(before(a=value), max_bytes=10_000, max_depth=20))
            try:
                object_of(after, stored)
            except (ValueError, TypeError) as error:
                wrong.append((SAMPLES[old][0], SAMPLES[new][0], stored, str(error)))

    assert wrong == []
    assert passed > len(SAMPLES) + 20  # more than each type by itself
