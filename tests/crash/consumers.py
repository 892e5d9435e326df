"""Consumer processes, as an operator starts and stops them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

ROOT = Path(__file__).parent.parent.parent
STOPS_WITHIN = 30.0


@contextmanager
def consumers(outbox: str, dsn: str, *, processes: int = 1) -> Iterator[None]:
    """Run *outbox* (``module:name``) in so many processes; stop them by SIGTERM, which must end
    well. What they log is in the output of the test."""
    running: list[subprocess.Popen[str]] = []
    try:
        running += [_start(outbox, dsn) for _ in range(processes)]
        yield
        for each in running:
            each.send_signal(signal.SIGTERM)
        assert [each.wait(STOPS_WITHIN) for each in running] == [0] * processes
    finally:
        for each in running:
            each.kill()
            each.wait()


def _start(outbox: str, dsn: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "sa_outbox.consume", outbox],
        cwd=ROOT,
        # In the environment: a command line is shown to everybody on the machine.
        env=os.environ | {"SA_OUTBOX_DATABASE_URL": dsn},
        text=True,
    )


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
