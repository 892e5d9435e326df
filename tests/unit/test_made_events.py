"""The shortcuts by which ``add_event`` makes its event lead to what the constructors make."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sa_outbox import Event, Outbox
from sa_outbox.event.event import EventFields
from sa_outbox.event.ids import uuid7
from sa_outbox.producer.pending import make_pending

LATER = datetime(2031, 1, 1, tzinfo=UTC)


def fields(event: Event[Any]) -> dict[str, object]:
    slots = (name for name in EventFields.__slots__ if name != "__weakref__")
    return {name: getattr(event, name) for name in slots if hasattr(event, name)}


def test_an_added_event_has_every_field_that_the_constructor_sets() -> None:
    given: dict[str, Any] = {
        "key": "k",
        "tenant": "t",
        "headers": {"trace": "1"},
        "run_at": LATER,
        "priority": 3,
        "idempotency_key": "i",
    }

    added = make_pending("order.placed", {"n": 1}, Outbox().settings.limits, **given).event

    given["headers"] = {"trace": "1", "idempotency_key": "i"}  # where it is stored
    by_hand = Event("order.placed", {"n": 1}, event_id=added.event_id, **given)
    assert type(added) is Event
    assert fields(added) == fields(by_hand)


def test_a_new_id_is_an_ordinary_uuid_of_version_7() -> None:
    made = uuid7()

    assert made == UUID(str(made)) == UUID(int=made.int)
    assert hash(made) == hash(UUID(str(made)))
    assert (made.version, made.is_safe) == (7, UUID(str(made)).is_safe)
    assert pickle.loads(pickle.dumps(made)) == made
