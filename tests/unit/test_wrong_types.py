"""An argument of the wrong Python type is refused where it is passed, and means nothing else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from sa_outbox import Event, Outbox, Reject, RetryLater, RetryPolicy, SomeFailed
from sa_outbox.errors import ConfigError, Undeliverable, WrongArgument
from sa_outbox.event.types import EventTypes

ID = UUID(int=1)
NOT_TEXT: list[Any] = [None, 5, b"x", timedelta(5), ValueError("x"), ["x"], object()]


def test_a_delay_without_its_name_is_no_reason_to_retry_later() -> None:
    wrong: Any = timedelta(minutes=5)

    with pytest.raises(TypeError, match=r"RetryLater\(delay=\.\.\.\)"):
        RetryLater(wrong)


@pytest.mark.parametrize("make", [RetryLater, Reject, Undeliverable])
@pytest.mark.parametrize("wrong", NOT_TEXT, ids=lambda each: type(each).__name__)
def test_a_reason_is_text(make: Callable[[Any], object], wrong: object) -> None:
    with pytest.raises(TypeError, match=make.__name__):
        make(wrong)


def test_the_kind_of_what_is_undeliverable_is_text() -> None:
    wrong: Any = 404

    with pytest.raises(TypeError, match="kind must be a str, not int"):
        Undeliverable("x", kind=wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        "x",
        [ID],
        [(ID, ValueError())],
        {str(ID): ValueError()},
        {ID: "no"},
        {ID: ValueError},
        {ID: ValueError(), "x": ValueError()},
    ],
    ids=repr,
)
def test_some_failed_maps_ids_to_errors(wrong: Any) -> None:
    with pytest.raises(TypeError, match="SomeFailed: errors must"):
        SomeFailed(wrong)


def test_true_is_no_factor() -> None:
    with pytest.raises(ConfigError, match="factor"):
        RetryPolicy(factor=True)


@pytest.mark.parametrize("wrong", [[], {}, (), 0, "", False])
def test_what_is_empty_is_not_the_default_limits(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="limits must be Limits"):
        Outbox(limits=wrong)


@pytest.mark.parametrize("wrong", [None, "x", 5, object(), lambda: None])
def test_an_event_type_is_a_class(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="is for a class"):
        EventTypes().register("order.placed")(wrong)


@pytest.mark.parametrize("wrong", [None, "x", 5, {}])
def test_an_upcaster_is_a_function(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="is for a function"):
        EventTypes().upcast("order.placed", since=1)(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"event_type": 5},
        {"event_type": None},
        {"event_id": str(ID)},
        {"key": 5},
        {"tenant": 5},
        {"headers": [("a", "b")]},
        {"run_at": "now"},
        {"priority": "high"},
        {"idempotency_key": ID},
        {"position": "1"},
        {"created_at": 5.0},
    ],
    ids=lambda each: next(iter(each)),
)
def test_an_event_made_by_hand_has_fields_of_the_right_types(wrong: dict[str, Any]) -> None:
    with pytest.raises(WrongArgument) as caught:
        Event(**{"event_type": "order.placed", "payload": {}, **wrong})

    assert caught.value.field == next(iter(wrong))
