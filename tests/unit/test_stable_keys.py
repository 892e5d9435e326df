"""``stable_key``: equal input gives an equal key, other input another one, everywhere."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
import unicodedata
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal, localcontext
from enum import Enum, IntEnum
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sa_outbox import stable_key
from sa_outbox.errors import InvalidEvent, PayloadError, WrongArgument
from sa_outbox.event.validation import MAX_KEY_BYTES, checked_text

AN_ID = UUID("018f2a3b-0000-7000-8000-00000000002a")


class Colour(Enum):
    RED = "red"


class Text(str, Enum):  # noqa: UP042 - its format changed with Python 3.12
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Point(NamedTuple):
    x: int
    y: int


def key(*parts: object) -> str:
    return stable_key("a.b", *parts)


GOLDEN: list[tuple[tuple[Any, ...], dict[str, str], str]] = [
    ((1,), {}, "a.b:::"),
    (("tea", 2, None), {"tenant": "acme"}, "a.b:acme::"),
    (({"b": [1, 2.5], "a": True},), {"tenant": "acme", "project_id": "p7"}, "a.b:acme:p7:"),
    ((AN_ID, date(2025, 6, 1), timedelta(minutes=5), time(8, 30)), {}, "a.b:::"),
    ((datetime(2025, 6, 1, 12, tzinfo=UTC), Decimal("12.50"), b"\x00"), {}, "a.b:::"),
    (({"ä", "b"}, Colour.RED, Level.HIGH), {}, "a.b:::"),
]
HASHES = [
    "b51885aff1c5a68c15110098df025f76",
    "0828ce74dc194549709de2e3d53cae3d",
    "8343b62374bb052d2cc2271f2478a91f",
    "d4bef33bd5df87ebcdcf19927c77a20c",
    "6d14c71a9e6ec084354416916939ca06",
    "019e5cd6a41f2c3bc0b4910fb3b6844a",
]


class TestPromises:
    @pytest.mark.parametrize(
        ("parts", "names", "readable", "digits"),
        [(*each, digits) for each, digits in zip(GOLDEN, HASHES, strict=True)],
    )
    def test_keys_of_earlier_releases_are_made_again(
        self, parts: tuple[Any, ...], names: dict[str, str], readable: str, digits: str
    ) -> None:
        assert stable_key("a.b", *parts, **names) == readable + digits

    @pytest.mark.parametrize("seed", ["0", "1", "4711"])
    def test_another_process_makes_the_same_key_whatever_its_hashes(self, seed: str) -> None:
        program = (
            "from sa_outbox.event.stable_keys import stable_key\n"
            "print(stable_key('a.b', {'b': {'x', 'y', 'z', 'w'}, 'a': 0.1, 'ä': None}))"
        )

        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": "C", "PYTHONUTF8": "1"},
            capture_output=True,
            text=True,
            check=True,
        )

        made = key({"ä": None, "a": 0.1, "b": {"w", "z", "y", "x"}})
        assert done.stdout.strip() == made

    def test_a_context_for_decimals_changes_nothing(self) -> None:
        number = Decimal("1234567890.123456789012345678901234567890")
        with localcontext() as context:
            context.prec = 3
            within = key(number)

        assert within == key(number) != key(number + 1)


class TestShape:
    def test_type_tenant_and_project_stand_before_the_hash(self) -> None:
        made = stable_key("report.due", 1, tenant="acme", project_id="p7")

        assert re.fullmatch(r"report\.due:acme:p7:[0-9a-f]{32}", made)

    def test_what_is_not_given_leaves_its_place_empty(self) -> None:
        assert re.fullmatch(r"report\.due:::[0-9a-f]{32}", stable_key("report.due", 1))
        assert re.fullmatch(r"report\.due::p7:\w{32}", stable_key("report.due", 1, project_id="p7"))

    def test_an_event_type_that_is_an_enum_is_its_text(self) -> None:
        assert stable_key(Text.RED, 1) == stable_key("red", 1)

    @given(
        st.text("ab", min_size=1, max_size=200),
        st.text("xé€😀", min_size=1, max_size=128),
        st.text("xé€😀", min_size=1, max_size=128),
    )
    def test_it_is_an_idempotency_key_however_long_the_names(
        self, event_type: str, tenant: str, project_id: str
    ) -> None:
        made = stable_key(event_type, 1, tenant=tenant, project_id=project_id)

        assert checked_text("idempotency_key", made) == made
        full = f"{event_type}:{tenant}:{project_id}"
        readable, digits = made[:-33], made[-32:]
        assert full.startswith(readable)
        assert readable == full or len(made.encode()) > MAX_KEY_BYTES - 4
        assert re.fullmatch("[0-9a-f]{32}", digits)

    def test_what_is_cut_off_counts_all_the_same(self) -> None:
        long = "t" * 512

        assert stable_key("a", 1, tenant=long) != stable_key("a", 1, tenant=long[:-1] + "u")
        assert len(stable_key("a", 1, tenant=long)) == MAX_KEY_BYTES

    def test_every_part_of_the_name_counts(self) -> None:
        made = [
            stable_key("a", 1),
            stable_key("b", 1),
            stable_key("a", 1, tenant="t"),
            stable_key("a", 1, project_id="t"),
            stable_key("a", 1, tenant="t", project_id="p"),
            stable_key("a:t", 1),
            stable_key("a", 1, tenant="t:p"),
            stable_key("a:t", 1, tenant="p"),
        ]

        assert len({each[-32:] for each in made}) == len(made)


class TestEqual:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (1, 1.0),
            (1, Decimal("1.00")),
            (100, Decimal("1E+2")),
            (0, -0.0),
            (0, Decimal("-0.00")),
            (0.1, Decimal("0.1")),
            (1e300, Decimal("1e300")),
            (10**30, 1e30),
            ([1, 2], (1, 2)),
            (Point(1, 2), [1, 2]),
            ({1, 2}, frozenset({2, 1})),
            ({"a": 1}.keys(), {"a"}),
            (Colour.RED, "red"),
            (Text.RED, "red"),
            (Level.HIGH, 3),
            (AN_ID, str(AN_ID)),
            ("é", "e\u0301"),
            ({"é": 1}, {"e\u0301": 1}),
            (
                datetime(2025, 6, 1, 12, tzinfo=UTC),
                datetime(2025, 6, 1, 14, tzinfo=timezone(timedelta(hours=2))),
            ),
            (timedelta(hours=1), timedelta(seconds=3600)),
        ],
    )
    def test_two_ways_to_write_one_thing_have_one_key(self, one: object, other: object) -> None:
        assert key(one) == key(other)
        assert key({"deep": [one]}) == key({"deep": [other]})

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (["a", "b"], ["ab"]),
            (["a", "b"], "a,b"),
            (["a", "b"], "ab"),
            (["a", ["b"]], [["a"], "b"]),
            ([["a", "b"]], ["a", "b"]),
            ([], [[]]),
            ([], {}),
            ([], None),
            ([], set()),
            ({}, set()),
            (["a"], {"a"}),
            ({"a": "b"}, [["a", "b"]]),
            ({"a": "b"}, ["a", "b"]),
            ({"a": {"b": 1}}, {"a": {}, "b": 1}),
            ({"a": 1, "b": 2}, {"a": 2, "b": 1}),
            ({1: "a"}, {"1": "a"}),
            ([1, 2], [2, 1]),
            (None, ""),
            (None, "None"),
            ("", "0"),
            (1, "1"),
            (1, True),
            (0, False),
            (None, False),
            (True, "true"),
            (1, 10),
            (1, -1),
            (0.1, 0.01),
            (10**400, 10**401),
            (0.1 + 0.2, 0.3),
            ("a", b"a"),
            ("a", "A"),
            ("a", "a "),
            (date(2025, 6, 1), datetime(2025, 6, 1, tzinfo=UTC)),
            (date(2025, 6, 1), "2025-06-01"),
            (time(8), timedelta(hours=8)),
            (timedelta(microseconds=1), timedelta(0)),
            (timedelta(seconds=1), 1),
            (timedelta(0), timedelta(days=-1)),
            ("x1:a", ["a"]),
        ],
    )
    def test_two_things_have_two_keys(self, one: object, other: object) -> None:
        assert key(one) != key(other)
        assert key({"deep": [one]}) != key({"deep": [other]})

    def test_parts_do_not_run_into_each_other(self) -> None:
        made = [key("a", "b"), key("ab"), key(["a", "b"]), key("a", "b", None), key("b", "a")]

        assert len(set(made)) == len(made)

    def test_an_integer_of_any_length_has_a_key(self) -> None:
        assert key(10**5000 + 1) != key(10**5000)


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.binary(max_size=8),
    st.uuids(),
    st.dates(),
    st.datetimes(timezones=st.just(UTC)),
    st.timedeltas(),
    st.times(),
)
NAMES = st.text("abcé", max_size=3)
TREES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)


def paths(tree: Any) -> list[tuple[Any, ...]]:
    """The way to every leaf."""
    if isinstance(tree, dict):
        return [(name, *rest) for name, item in tree.items() for rest in paths(item)]
    if isinstance(tree, list):
        return [(index, *rest) for index, item in enumerate(tree) for rest in paths(item)]
    return [()]


def changed(tree: Any, path: tuple[Any, ...], leaf: object) -> Any:
    if not path:
        return leaf
    again = copy.copy(tree)
    again[path[0]] = changed(tree[path[0]], path[1:], leaf)
    return again


def leaf_at(tree: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        tree = tree[step]
    return tree


def plain(leaf: Any) -> Any:
    """What a leaf counts as, computed in another way than the module does."""
    if isinstance(leaf, bool) or leaf is None:
        return repr(leaf)
    if isinstance(leaf, float):
        return ("number", Decimal(repr(leaf)))
    if isinstance(leaf, (int, Decimal)):
        return ("number", Decimal(leaf))
    if isinstance(leaf, (str, UUID)):
        return ("text", unicodedata.normalize("NFC", str(leaf)))
    return (type(leaf).__name__, leaf)


def shuffled(tree: Any) -> Any:
    """Every mapping the other way round."""
    if isinstance(tree, dict):
        return {name: shuffled(tree[name]) for name in reversed(tree)}
    return [shuffled(each) for each in tree] if isinstance(tree, list) else tree


class TestAnyInput:
    @given(TREES)
    def test_equal_input_has_an_equal_key_in_whatever_order_its_mappings_are(
        self, tree: Any
    ) -> None:
        assert key(tree) == key(copy.deepcopy(tree)) == key(shuffled(tree))

    @given(TREES, LEAVES, st.data())
    def test_another_leaf_is_another_key(self, tree: Any, leaf: Any, data: st.DataObject) -> None:
        ways = paths(tree)
        assume(ways)
        path = data.draw(st.sampled_from(ways))
        before = leaf_at(tree, path)

        assert (key(tree) == key(changed(tree, path, leaf))) == (plain(before) == plain(leaf))

    @given(TREES, TREES)
    def test_two_trees_have_one_key_only_if_they_are_one(self, one: Any, other: Any) -> None:
        def counted(tree: Any) -> Any:
            if isinstance(tree, dict):
                return ("mapping", {name: counted(item) for name, item in tree.items()})
            return (
                ("list", [counted(each) for each in tree])
                if isinstance(tree, list)
                else plain(tree)
            )

        assert (key(one) == key(other)) == (counted(one) == counted(other))

    @given(st.lists(LEAVES.filter(lambda leaf: not isinstance(leaf, bool)), max_size=5))
    def test_a_set_has_no_order_and_nothing_twice(self, leaves: list[Any]) -> None:
        assert key(frozenset(leaves)) == key(frozenset(reversed(leaves)))

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text("abé"),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
            max_leaves=8,
        )
    )
    def test_what_was_json_in_between_has_the_same_key(self, tree: Any) -> None:
        assert key(json.loads(json.dumps(tree))) == key(tree)


class BrokenZone(tzinfo):
    def utcoffset(self, _: datetime | None) -> timedelta:
        raise RuntimeError("a secret")

    dst = tzname = utcoffset  # type: ignore[assignment]


@dataclass
class Order:
    order_id: int


class TestRefused:
    @pytest.mark.parametrize(
        ("part", "path"),
        [
            (object(), "$[0]"),
            (Order(1), "$[0]"),
            (Order, "$[0]"),
            (bytearray(b"a"), "$[0]"),
            (iter([1]), "$[0]"),
            (1j, "$[0]"),
            (float("nan"), "$[0]"),
            (float("-inf"), "$[0]"),
            (Decimal("sNaN"), "$[0]"),
            (Decimal("Infinity"), "$[0]"),
            (datetime(2025, 6, 1), "$[0]"),  # noqa: DTZ001 - the subject
            (datetime(2025, 6, 1, tzinfo=BrokenZone()), "$[0]"),
            (datetime.min.replace(tzinfo=timezone(timedelta(hours=2))), "$[0]"),
            (time(8, tzinfo=UTC), "$[0]"),
            ("\ud800", "$[0]"),
            ({"items": [1, {"price": float("nan")}]}, "$[0].items[1].price"),
            ({"a b": object()}, "$[0]['a b']"),
            ({object: 1}, None),
            ({"é": 1, "e\u0301": 2}, None),
            ({1.5, float("inf")}, "$[0]{}"),
        ],
    )
    def test_what_has_no_stable_form_is_refused_with_its_path(
        self, part: object, path: str | None
    ) -> None:
        with pytest.raises(PayloadError) as caught:
            key(part)

        assert caught.value.field == "parts"
        assert path is None or caught.value.path == path
        assert "secret" not in str(caught.value)

    def test_the_path_counts_the_parts(self) -> None:
        with pytest.raises(PayloadError) as caught:
            key("a", "b", [object()])

        assert caught.value.path == "$[2][0]"

    def test_what_contains_itself_is_refused(self) -> None:
        endless: list[Any] = []
        endless.append(endless)

        with pytest.raises(PayloadError, match="within itself"):
            key(endless)

    def test_no_part_at_all_is_refused(self) -> None:
        with pytest.raises(InvalidEvent, match="about"):
            key()

    @pytest.mark.parametrize(
        ("names", "field"),
        [
            ({"event_type": "not a name"}, "event_type"),
            ({"tenant": ""}, "tenant"),
            ({"tenant": "a\nb"}, "tenant"),
            ({"project_id": "p" * 513}, "project_id"),
        ],
        ids=str,
    )
    def test_names_are_checked_as_those_of_an_event(
        self, names: dict[str, str], field: str
    ) -> None:
        event_type = names.pop("event_type", "a.b")
        with pytest.raises(InvalidEvent) as caught:
            stable_key(event_type, 1, **names)

        assert caught.value.field == field

    def test_a_tenant_that_is_no_text_is_refused(self) -> None:
        with pytest.raises(WrongArgument):
            stable_key("a.b", 1, tenant=7)  # type: ignore[arg-type]
