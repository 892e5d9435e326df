"""What is kept of an error: the dead letter is written whatever the error's text is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from sa_outbox import Event, Outbox, RetryPolicy
from sa_outbox.settings import Notify

from .conftest import QUICK, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("poll")]


class Broken(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


def looped() -> Exception:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    return one


def oddly_named() -> Exception:
    class Odd(Exception):
        pass

    Odd.__qualname__ = "Odd\x00\ud800"
    return Odd("named")


TEXTS = {
    "50 MB": (ValueError("x" * 50_000_000), "xxx"),
    "a NUL": (ValueError("a\x00b"), "a\\u0000b"),
    "a lone surrogate": (ValueError("a\ud800b"), "a\\ud800b"),
    "a text that raises": (Broken(), "its text is unavailable: RuntimeError"),
    "no text": (ValueError(), ""),
    "causes in a circle": (looped(), "one"),
    "an odd name": (oddly_named(), "named"),
    "a password": (ValueError("postgresql://joe:hush@db/x password=hush"), "***@db/x password=***"),
}


@pytest.mark.parametrize(("error", "kept"), TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.parametrize("order", ["total", "key"])
async def test_a_dead_letter_is_written_whatever_the_error_says(
    error: Exception,
    kept: str,
    order: Any,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
) -> None:
    @outbox.listener("billing", on="order.*", order=order, retry=QUICK)
    async def charge(event: Event[Any]) -> None:
        if event.payload["n"] == 1:
            raise error

    producer.add(1, 2, key="a")

    async with consuming(outbox) as running:
        await running.dead("billing")
        await running.done("billing")

    [dead] = database.dead_letters("billing")
    assert len(dead.errors) == 3
    for each in dead.errors:
        assert kept in each["message"]
        assert len(each["message"]) < 8_100
        assert "hush" not in str(each)


async def test_the_program_takes_out_what_only_it_knows(
    notify: Notify, producer: Producer, database: Database, consuming: Consuming
) -> None:
    outbox = Outbox(notify=notify, redact=lambda message: message.replace("Jane", "(name)"))

    @outbox.listener("billing", on="order.*", retry=QUICK)
    async def charge(event: Event[Any]) -> None:
        raise ValueError("no account of Jane") from KeyError("Jane")

    producer.add(1)

    async with consuming(outbox) as running:
        await running.dead("billing")

    [dead] = database.dead_letters("billing")
    assert dead.errors[0]["message"] == "no account of (name)"
    assert "Jane" not in str(dead.errors)


async def test_the_errors_of_a_very_patient_listener_are_bounded(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    attempts: list[int] = []

    @outbox.listener("billing", on="order.*", retry=RetryPolicy(attempts=55, base=timedelta(0)))
    async def charge(event: Event[Any]) -> None:
        attempts.append(1)
        raise ValueError(f"error {len(attempts)}")

    producer.add(1)

    async with consuming(outbox) as running:
        await running.dead("billing")

    [dead] = database.dead_letters("billing")
    kept = [each["message"] for each in dead.errors]
    assert (kept[0], kept[-1], len(kept)) == ("error 1", "error 55", 50)
