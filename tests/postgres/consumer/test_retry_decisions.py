"""Which errors are attempted again and when, with a database; and what is stored of them where."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import pytest

from sa_outbox import Event, Outbox, Reject, RetryLater, RetryPolicy
from sa_outbox.observe import AttemptFailed
from sa_outbox.policy.retry import PRESETS

from .conftest import ONCE, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

BOTH_ORDERS = pytest.mark.parametrize("order", ["total", "key"])
SECRET = "hunter2"
LATER = RetryPolicy(schedule=[timedelta(hours=1)])


class HTTPStatusError(Exception):
    """As httpx and requests have it."""

    def __init__(self, status: int, retry_after: Any) -> None:
        super().__init__(f"{status} for https://joe:{SECRET}@example.com/?access_token={SECRET}")
        headers = {"Retry-After": retry_after}
        self.response = SimpleNamespace(status_code=status, headers=headers)


class Mute(Exception):
    code = "mute"

    def __str__(self) -> str:
        raise RuntimeError(SECRET)


async def retry_in(
    error: Exception,
    policy: RetryPolicy,
    outbox: Outbox,
    producer: Producer,
    consuming: Consuming,
    **options: Any,
) -> float | None:
    """When the first attempt is followed by another, if its handler raises *error*."""

    @outbox.listener("billing", on="order.*", retry=policy, **options)
    async def charge(event: Event[Any]) -> None:
        raise error

    producer.add(1, key="a")

    async with consuming(outbox) as running:
        [told] = await running.recorder.seen(AttemptFailed)
        await running.settled("billing")
    return told.retry_in


@BOTH_ORDERS
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionResetError(), None),
        (ConnectionRefusedError(), "final"),
        (ValueError(), "final"),
        (Reject("no"), "rejected"),
        (RetryLater("busy", delay=timedelta(hours=1)), None),
    ],
    ids=lambda each: type(each).__name__,
)
async def test_only_what_the_policy_names_is_attempted_again(
    error: Exception,
    reason: str | None,
    order: Any,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
) -> None:
    policy = RetryPolicy(
        schedule=[timedelta(hours=1)],
        retry_on=(ConnectionError,),
        final_on=(ConnectionRefusedError,),
    )

    again = await retry_in(error, policy, outbox, producer, consuming, order=order)

    assert again == (3600 if reason is None else None)
    reasons = [row.reason for row in database.dead_letters("billing")]
    assert reasons == ([] if reason is None else [reason])


@BOTH_ORDERS
@pytest.mark.parametrize("status", [429, 503])
async def test_an_answer_that_says_when_is_obeyed(
    status: int,
    order: Any,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
) -> None:
    error = HTTPStatusError(status, "5000")

    assert await retry_in(error, LATER, outbox, producer, consuming, order=order) == 5000

    due = "SELECT extract(epoch FROM coalesce(d.due_at, l.retry_after) - now()) FROM"
    due += " outbox_listeners l LEFT JOIN outbox_deliveries d ON d.listener = l.name"
    assert 4900 < database.value(due) <= 5000


async def test_a_date_is_as_good_as_seconds(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    then = datetime.now(UTC) + timedelta(hours=2)
    error = HTTPStatusError(503, format_datetime(then, usegmt=True))

    again = await retry_in(error, LATER, outbox, producer, consuming)

    assert again is not None
    assert 7100 < again <= 7200


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (HTTPStatusError(429, "1"), 3600),
        (HTTPStatusError(429, "soon"), 3600),
        (HTTPStatusError(429, object()), 3600),
        (HTTPStatusError(500, "5000"), 3600),
        (HTTPStatusError(429, "9" * 90), 86_400),
    ],
    ids=["sooner than the policy", "nonsense", "no text", "another status", "too long"],
)
async def test_an_answer_has_its_say_only_between_the_policy_and_a_day(
    error: Exception, seconds: float, outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    assert await retry_in(error, LATER, outbox, producer, consuming) == seconds


@BOTH_ORDERS
async def test_a_first_wait_of_nothing_is_an_attempt_at_once(
    order: Any, outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    attempts: list[int] = []
    policy = RetryPolicy(schedule=(timedelta(0), timedelta(hours=1)))

    @outbox.listener("billing", on="order.*", order=order, retry=policy)
    async def charge(event: Event[Any]) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise ValueError("not yet")

    producer.add(1)

    async with consuming(outbox) as running:
        await running.done("billing")

    assert [each.retry_in for each in running.recorder.of(AttemptFailed)] == [0]


async def test_a_retry_later_whose_init_was_not_called_is_attempted_again(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    class Busy(RetryLater):
        def __init__(self) -> None:
            pass

    assert await retry_in(Busy(), LATER, outbox, producer, consuming) == 3600


async def test_a_listener_with_a_preset_gives_up_what_is_not_permitted(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    error = PermissionError("not yours")

    assert await retry_in(error, PRESETS["planning"], outbox, producer, consuming) is None

    assert database.dead_letters("billing")[0].reason == "final"


async def test_an_event_that_can_not_be_stored_is_final_with_a_preset(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*", retry=RetryPolicy.preset("default"))
    def charge(event: Event[Any]) -> None:
        producer.add(2, event_type="not a type")

    producer.add(1)

    async with consuming(outbox) as running:
        await running.dead("billing")

    [dead] = database.dead_letters("billing")
    assert (dead.reason, dead.errors[0]["code"]) == ("final", "invalid-event")


STORED = {
    "a URL": (
        HTTPStatusError(500, None),
        "HTTPStatusError",
        "500 for https://***@example.com/?access_token=***",
    ),
    "a token": (
        ValueError(f"Authorization: Bearer {SECRET}\nX-Api-Key: {SECRET}"),
        "ValueError",
        "Authorization: ***\nX-Api-Key: ***",
    ),
    "lines": (ValueError("one\ntwo\r\n\tthree"), "ValueError", "one\ntwo\r\n\tthree"),
    "a NUL": (ValueError("a\x00b"), "ValueError", "a\\u0000b"),
    "a lone surrogate": (ValueError("a\ud800b"), "ValueError", "a\\ud800b"),
    "50 MB": (
        ValueError("x" * 50_000_000),
        "ValueError",
        "x" * 8_000 + " ... (50,000,000 characters)",
    ),
    "no text": (Mute(), "mute", "(its text is unavailable: RuntimeError)"),
}
"""To the error its code and its text, as they are kept."""


@BOTH_ORDERS
@pytest.mark.parametrize(("error", "code", "kept"), STORED.values(), ids=STORED.keys())
async def test_while_it_waits_the_last_error_can_be_read_and_is_clean(
    error: Exception,
    code: str,
    kept: str,
    order: Any,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
) -> None:
    await retry_in(error, LATER, outbox, producer, consuming, order=order)

    rows = [database.listener("billing"), *database.deliveries("billing")]
    assert len(rows) == (1 if order == "total" else 2)
    for row in rows:
        assert (row.last_error_code, row.last_error) == (code, kept)
    assert SECRET not in str(rows)


@pytest.mark.parametrize(("error", "code", "kept"), STORED.values(), ids=STORED.keys())
async def test_a_dead_letter_and_the_listener_that_has_it_are_clean(
    error: Exception,
    code: str,
    kept: str,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
) -> None:
    await retry_in(error, ONCE, outbox, producer, consuming)

    row, [dead] = database.listener("billing"), database.dead_letters("billing")
    assert (row.last_error_code, row.last_error) == (code, kept)
    assert [(each["code"], each["message"]) for each in dead.errors] == [(code, kept)]
    assert SECRET not in str((row, dead))
