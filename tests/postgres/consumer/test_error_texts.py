"""What is kept of an error: the dead letter is written whatever the error's text is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from anyio import to_thread

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
    traced = [each["attempt"] for each in dead.errors if "traceback" in each]
    assert traced == [1, *range(47, 56)]


@pytest.mark.parametrize("order", ["key", "total", "none"])
async def test_every_attempt_has_its_traceback_and_the_fingerprint_of_its_error(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming, order: Any
) -> None:
    attempts: list[int] = []

    def pay() -> None:
        card = "4111"
        attempts.append(1)
        raise ValueError(f"no {card}") if len(attempts) < 3 else OSError("gone")

    @outbox.listener("billing", on="order.*", order=order, retry=QUICK)
    async def charge(event: Event[Any]) -> None:
        pay()

    producer.add(1)

    async with consuming(outbox) as running:
        await running.dead("billing")

    [dead] = database.dead_letters("billing")
    for each, error in zip(dead.errors, ("ValueError", "ValueError", "OSError"), strict=True):
        (raised,) = each["traceback"]
        names = [frame["function"].rpartition(".")[2] for frame in raised["frames"]]
        assert (raised["type"], names) == (error, ["charge", "pay"])
        assert "4111" not in str(raised)
        assert raised["frames"][1]["file"].endswith("test_error_texts.py")
        assert not raised["frames"][1]["file"].startswith("/")
    first, second, third = (each["fingerprint"] for each in dead.errors)
    assert first == second != third
    stored = "SELECT error_fingerprint FROM outbox_dead_letters"
    assert database.value(stored) == third


@pytest.mark.parametrize("stored", ['{"a": 1}', '"text"', "null", "[1, null, []]", "[]"])
async def test_errors_that_somebody_else_wrote_do_not_keep_a_delivery_from_being_settled(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming, stored: str
) -> None:
    """Of a parked delivery, and of a held cursor."""

    def overwrite() -> None:
        for table in ("outbox_deliveries", "outbox_listeners"):
            update = f"UPDATE {table} SET errors = CAST(:stored AS jsonb) WHERE errors <> '[]'"
            database.rows(update, stored=stored)

    for name, order in (("billing", "key"), ("strict", "total")):

        @outbox.listener(name, on="order.*", order=order, retry=QUICK)  # type: ignore[arg-type]  # one of them
        async def charge(event: Event[Any]) -> None:
            # In a thread: the other listener may be settling, and its row is locked until then.
            await to_thread.run_sync(overwrite)
            raise ValueError("no")

    producer.add(1)

    async with consuming(outbox) as running:
        await running.dead("billing")
        await running.dead("strict")

    for name in ("billing", "strict"):
        [dead] = database.dead_letters(name)
        assert dead.errors[-1]["attempt"] == 3
