"""What the tests of kills and outages share: events, and how far the listeners have come."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from tests.crash.seen import compare, read_log, read_seen

BEGUN = "CREATE TABLE begun (number bigint GENERATED ALWAYS AS IDENTITY, position bigint, pid int)"
KEYS = 7


def prepare(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(BEGUN)
        connection.execute(VERSIONS)


def write(dsn: str, count: int = 1, *, then: str | None = None, key: str | None = None) -> None:
    """Commit so many events, one by one, and notify."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for _ in range(count):
            write_one(connection, then=then, key=key)


def write_one(
    connection: psycopg.Connection, *, then: str | None = None, key: str | None = None
) -> None:
    chosen = f"k{random.randrange(KEYS)}" if key is None else key
    with connection.transaction():
        row = connection.execute(
            "INSERT INTO agg_versions (key, ver) VALUES (%s, 1)"
            " ON CONFLICT (key) DO UPDATE SET ver = agg_versions.ver + 1 RETURNING ver",
            [chosen],
        ).fetchone()
        assert row is not None
        connection.execute(
            "INSERT INTO outbox (event_id, event_type, key, payload) VALUES"
            " (gen_random_uuid(), 'crash.happened', %(key)s, jsonb_strip_nulls("
            "jsonb_build_object('ver', %(ver)s::int, 'then', %(then)s::text)))",
            {"key": chosen, "ver": row[0], "then": then},
        )
    connection.execute("SELECT pg_notify('outbox', '')")


VERSIONS = "CREATE TABLE agg_versions (key text PRIMARY KEY, ver int NOT NULL)"


@contextmanager
def writing(dsn: str, *, pause: float = 0.01) -> Iterator[None]:
    """Events all the time, whatever becomes of the server."""
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            with suppress(psycopg.Error), psycopg.connect(dsn, autocommit=True) as connection:
                while not stop.wait(pause):
                    write_one(connection)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def has_seen_all(dsn: str, *listeners: str) -> bool:
    """Each listener has seen every event of the log that is not its dead letter."""
    with suppress(psycopg.Error), psycopg.connect(dsn) as connection:
        for listener in listeners:
            missing = connection.execute(
                "SELECT count(*) FROM outbox WHERE event_id NOT IN"
                " (SELECT event_id FROM seen WHERE listener = %(name)s) AND event_id NOT IN"
                " (SELECT event_id FROM outbox_dead_letters WHERE listener = %(name)s)",
                {"name": listener},
            ).fetchone()
            if missing is None or missing[0]:
                return False
        return True
    return False


def assert_each_effect_once(dsn: str, *listeners: str) -> None:
    """But for dead letters: their effect must not be there."""
    dead = {(listener, position) for listener, position, *_ in dead_letters(dsn)}
    for listener in listeners:
        log = [each for each in read_log(dsn) if (listener, each.position) not in dead]
        found = compare(log, read_seen(dsn, listener), {})
        broken = found.broken(in_id_order=listener == "in_total")
        assert not broken, (listener, found)


def dead_letters(dsn: str) -> list[tuple[str, int, str, int, int]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(
            "SELECT listener, position, reason, attempts, crashes FROM outbox_dead_letters"
            " ORDER BY listener, position"
        ).fetchall()


def one(dsn: str, query: str, *values: object) -> object:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(query.encode(), values).fetchone()
        return None if row is None else row[0]
