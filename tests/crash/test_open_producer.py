"""A producer wrote an event and does not commit: who waits for it, and how long."""

from __future__ import annotations

import time

import psycopg
import pytest

from tests.crash.consumers import consumers, wake, write_event
from tests.crash.open_producer_app import GAP_WAIT
from tests.crash.seen import read_log, read_seen
from tests.support import eventually

AT_ONCE = 4.0
"""Seconds: more than a busy machine needs, less than ``GAP_WAIT``."""
MANY = 10


def write_events(dsn: str, key: str) -> float:
    """Events of others, committed and announced; a time just before the commit."""
    with psycopg.connect(dsn) as connection:
        for version in range(1, MANY + 1):
            write_event(connection, key, version)
        before = time.monotonic()
    wake(dsn)
    return before


def seen_keys(dsn: str, listener: str) -> list[str]:
    return [event.key for event in read_seen(dsn, listener)]


def wait_for(dsn: str, listener: str, keys: list[str], *, within: float) -> None:
    eventually(lambda: seen_keys(dsn, listener) == keys, within=within)


@pytest.mark.long
def test_open_producer_delays_its_own_events_and_total_order_up_to_gap_wait(dsn: str) -> None:
    gap_wait = GAP_WAIT.total_seconds()
    start, early, late = ["start"] * MANY, ["early"] * MANY, ["late"] * MANY
    own = ["own"]
    write_events(dsn, "start")
    with (
        psycopg.connect(dsn) as producer,
        consumers("tests.crash.open_producer_app:outbox", dsn),
    ):
        for listener in ("by_key", "in_total", "patient"):
            wait_for(dsn, listener, start, within=30)

        write_event(producer, "own", 1)
        written_at = write_events(dsn, "early")

        wait_for(dsn, "by_key", start + early, within=AT_ONCE)
        wait_for(dsn, "in_total", start + early, within=gap_wait + AT_ONCE)
        # Nor sooner: before that commit there was no hole to wait at.
        assert time.monotonic() - written_at > gap_wait

        # It has waited long enough for this hole. What comes now does not wait for it again.
        write_events(dsn, "late")
        wait_for(dsn, "by_key", start + early + late, within=AT_ONCE)
        wait_for(dsn, "in_total", start + early + late, within=AT_ONCE)
        assert seen_keys(dsn, "patient") == start

        producer.commit()
        wake(dsn)
        for listener in ("by_key", "in_total"):
            wait_for(dsn, listener, start + early + late + own, within=AT_ONCE)
        wait_for(dsn, "patient", start + own + early + late, within=AT_ONCE)

    positions = [event.position for event in read_seen(dsn, "patient")]
    assert positions == [event.position for event in read_log(dsn)]
