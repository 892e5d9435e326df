"""Bad input is refused where it is given, by an error that names the field and the place in it."""

from __future__ import annotations

import pytest

from sa_outbox.errors import InvalidEvent, PayloadError
from sa_outbox.producer.pending import make_pending
from sa_outbox.settings import Limits
from tests.support.bad_input import REFUSED, SECRET, Refused


def wrong_with(case: Refused) -> str | None:
    """What is not as the catalogue says, or nothing."""
    event, payload = (*case.arguments, None)[:2]
    try:
        make_pending(event, payload, Limits(), **case.options)
    except InvalidEvent as error:
        path = error.path if isinstance(error, PayloadError) else None
        if not isinstance(error, case.error) or error.field != case.field:
            return f"is {type(error).__name__} for {error.field}, not {case.error.__name__}"
        if case.path is not None and path != case.path:
            return f"is at {path}, not at {case.path}"
        return "shows the secret" if SECRET in str(error) else None
    except Exception as error:  # noqa: BLE001 - whatever it is, it is not what was promised
        return f"is {error!r:.100}"
    return "is accepted"


@pytest.mark.parametrize("field", sorted({case.field for case in REFUSED.values()}))
def test_each_is_refused_with_its_error_field_and_path(field: str) -> None:
    found = {name: wrong_with(case) for name, case in REFUSED.items() if case.field == field}

    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_what_was_promised_is_looked_at() -> None:
    good = Refused(PayloadError, "payload", "$.a", lambda: {"a": {1}})

    assert wrong_with(good) is None
    assert wrong_with(Refused(PayloadError, "payload", "$.b", good.payload)) == (
        "is at $.a, not at $.b"
    )
    assert wrong_with(Refused(PayloadError, "key", None, good.payload)) == (
        "is PayloadError for payload, not PayloadError"
    )
    assert wrong_with(Refused(PayloadError, "payload", None, lambda: 1)) == "is accepted"
