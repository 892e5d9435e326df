"""Which claims of a queue wait for the disk."""

from __future__ import annotations

from sa_outbox.consumer.position.horizon import Horizon
from sa_outbox.consumer.queue.durability import ClaimDurability

NOBODY: frozenset[str] = frozenset()


def test_an_event_that_was_there_when_the_process_connected_is_claimed_durably() -> None:
    horizon = Horizon()
    durability = ClaimDurability(horizon)
    assert durability.is_needed(1, 1), "nothing is known yet"

    horizon.observe(10, NOBODY)
    horizon.observe(20, NOBODY)

    assert durability.is_needed(10, 12)
    assert not durability.is_needed(13, 13)


def test_after_a_reconnect_all_that_is_there_is_claimed_durably() -> None:
    horizon = Horizon()
    durability = ClaimDurability(horizon)
    horizon.observe(10, NOBODY)

    horizon.forget()
    assert durability.is_needed(11, 11)
    horizon.observe(15, NOBODY)

    assert durability.is_needed(15, 15)
    assert not durability.is_needed(16, 16)


def test_an_event_is_claimed_without_waiting_at_most_once() -> None:
    horizon = Horizon()
    durability = ClaimDurability(horizon)
    horizon.observe(10, NOBODY)

    assert not durability.is_needed(11, 14)

    assert durability.is_needed(11, 14)
    assert durability.is_needed(12, 20)
    assert not durability.is_needed(21, 21)
