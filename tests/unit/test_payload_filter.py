"""The filter of a listener: what it may say, and its one text."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest

from sa_outbox import Event, Outbox
from sa_outbox.errors import ConfigError
from sa_outbox.operations.endpoint import Delivering
from sa_outbox.policy.payload_filter import MAX_FILTER_BYTES, filter_text

TOO_DEEP: dict[str, Any] = {}
TOO_DEEP["again"] = TOO_DEEP
WRONG = {
    "nothing": ({}, "must name fields"),
    "no object": ("kind", "must name fields"),
    "a long list": (["kind"] * 1000, "must name fields"),
    "an object without fields": ({"author": {}}, "must name fields"),
    "a list": ({"tags": ["a"]}, "'tags' must be text"),
    "bytes": ({"tag": b"a"}, "'tag' must be text"),
    "a name that is no text": ({1: "a"}, "name is not text"),
    "a NUL": ({"tag": "a\0"}, "NUL"),
    "a NUL in a name": ({"author": {"\0": 1}}, "NUL"),
    "half a character": ({"tag": "\ud800"}, "no payload can have"),
    "infinity": ({"amount": float("inf")}, "no payload can have"),
    "a number of too many digits": ({"amount": 10**5000}, "no payload can have"),
    "an object in itself": (TOO_DEEP, "levels deep"),
    "too much": ({"tag": "a" * MAX_FILTER_BYTES}, f"{MAX_FILTER_BYTES} are allowed"),
}


@pytest.mark.parametrize(("where", "says"), WRONG.values(), ids=WRONG.keys())
def test_what_no_payload_can_meet_is_refused_where_it_is_declared(where: Any, says: str) -> None:
    outbox = Outbox()

    with pytest.raises(ConfigError, match=says) as refused:

        @outbox.listener("billing", on="*", where=where)
        async def charge(event: Event[Any]) -> None: ...

    with pytest.raises(ConfigError, match=says):
        Delivering(on=("*",), where=where)
    assert str(refused.value).count("where") == 1
    assert len(str(refused.value)) < 300


def test_the_same_filter_has_the_same_text_however_it_is_written() -> None:
    one = filter_text("where", {"b": {"y": 1, "x": None}, "a": "ü\\u0000"})
    other = filter_text("where", MappingProxyType({"a": "ü\\u0000", "b": {"x": None, "y": 1}}))

    assert one == other
    assert json.loads(one) == {"a": "ü\\u0000", "b": {"x": None, "y": 1}}


def test_another_filter_is_another_declaration_and_none_is_what_it_was() -> None:
    outbox = Outbox()
    declared: dict[str, Any] = {"none": None, "user": {"kind": "user"}, "bot": {"kind": "bot"}}
    for name, where in declared.items():

        @outbox.listener(name, on="order.*", where=where)
        async def handle(event: Event[Any]) -> None: ...

    prints = {name: outbox.listeners[name].fingerprint for name in declared}
    assert len(set(prints.values())) == 3
    assert prints["none"] == "06da79ef32c1ce24"
    assert len({*outbox.listeners}) == 3, "a listener can be hashed"
