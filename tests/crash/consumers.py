"""Consumer processes, as an operator starts and stops them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.crash.fleet import fleet


@contextmanager
def consumers(outbox: str, dsn: str, *, processes: int = 1) -> Iterator[None]:
    """Run *outbox* (``module:name``) in so many processes; stop them by SIGTERM, which must end
    well. What they log is in the output of the test."""
    with fleet(outbox, dsn) as members:
        running = [members.start() for _ in range(processes)]
        yield
        assert [each.terminate() for each in running] == [0] * processes


def write_event(connection: psycopg.Connection, key: str, ver: int) -> None:
    """Without NOTIFY and without a commit, which are the caller's."""
    connection.execute(
        "INSERT INTO outbox (event_id, event_type, key, payload)"
        " VALUES (gen_random_uuid(), 'stress.changed', %(key)s,"
        " jsonb_build_object('key', %(key)s::text, 'ver', %(ver)s::int))",
        {"key": key, "ver": ver},
    )


def wake(dsn: str) -> None:
    """What a producer's notifier does after a commit."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SELECT pg_notify('outbox', '')")
