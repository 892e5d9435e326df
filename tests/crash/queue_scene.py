"""What the tests of queues share: many events, the notes of the handlers, what is not settled."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import psycopg

from tests.crash.seen import doubled, ghosts, lost, read_log, read_seen

# Of every kind: urgent ones, those that wait for all others, those with a time, those that fail,
# and of several tenants. So the events come out of turn, and many get a row of their own.
WRITE_MANY = """
INSERT INTO outbox (event_id, event_type, key, tenant, priority, run_at, payload)
SELECT gen_random_uuid(), 'crash.happened', 'k' || mod(n, 7), 't' || mod(n, 3),
    CASE mod(n, 20) WHEN 0 THEN 5 WHEN 1 THEN -1 ELSE 0 END,
    CASE WHEN mod(n, 50) = 7 THEN clock_timestamp() + interval '1 s' END,
    jsonb_strip_nulls(jsonb_build_object(
        'ver', n, 'then', CASE WHEN mod(n, 100) = 3 THEN 'fail_first' END))
FROM generate_series(1, %s) AS n
"""
WRITE_SLOW = """
INSERT INTO outbox (event_id, event_type, key, payload)
SELECT gen_random_uuid(), 'crash.happened', 'k', jsonb_build_object('ver', n, 'then', seconds)
FROM unnest(%s::text[]) WITH ORDINALITY AS slow (seconds, n)
"""
LEFT = """
SELECT NOT EXISTS (SELECT FROM outbox_listeners) OR EXISTS (SELECT FROM outbox_ranges)
    OR EXISTS (SELECT FROM outbox_deliveries) OR EXISTS (
    SELECT FROM outbox AS o, outbox_listeners AS l
    WHERE o.id > l.last_processed_id OR (l.gaps <> '[]' AND EXISTS (
        SELECT FROM jsonb_array_elements(l.gaps) AS gap
        WHERE o.id BETWEEN (gap ->> 0)::bigint AND (gap ->> 1)::bigint)))
"""
ABANDONED = """
SELECT coalesce(max(extract(epoch FROM clock_timestamp() - since)), 0)::float8 FROM (
    SELECT CASE WHEN locked_by IS NULL THEN updated_at ELSE lease_expires_at END AS since
    FROM outbox_ranges) AS held WHERE since < clock_timestamp()
"""


LONGEST_LEASE = """
SELECT coalesce(max(extract(epoch FROM lease_expires_at - clock_timestamp())), 0)::float8
FROM outbox_ranges WHERE locked_by IS NOT NULL
"""


class Note(NamedTuple):
    pid: int
    began: float
    ended: float | None


def write_many(dsn: str, count: int, *, at_once: int = 500) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for done in range(0, count, at_once):
            connection.execute(WRITE_MANY, [min(at_once, count - done)])
            connection.execute("SELECT pg_notify('outbox', '')")


def write_slow(dsn: str, *then: str) -> None:
    """One event for each, in one transaction."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(WRITE_SLOW, [list(then)])
        connection.execute("SELECT pg_notify('outbox', '')")


def is_settled(dsn: str) -> bool:
    """Nothing is left: not in the log, not in a range, not in a delivery's row."""
    with suppress(psycopg.Error), psycopg.connect(dsn) as connection:
        row = connection.execute(LEFT).fetchone()
        return row is not None and row[0] is False
    return False


def abandoned_for(dsn: str) -> float:
    """Seconds for which some range has been nobody's: given back, or its lease over."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute(ABANDONED).fetchone()
        assert row is not None
        return float(row[0])


def longest_lease(dsn: str) -> float:
    """Seconds for which some range is still held, whether its holder lives or not."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute(LONGEST_LEASE).fetchone()
        assert row is not None
        return float(row[0])


def read_notes(folder: Path, listener: str) -> dict[int, list[Note]]:
    """Of each event, when which process began with it and ended."""
    found: defaultdict[int, list[Note]] = defaultdict(list)
    for file in folder.iterdir():
        pid = int(file.name)
        for line in file.read_text().splitlines():
            name, position, what, at = line.split()
            if name != listener:
                continue
            notes = found[int(position)]
            if what == "began":
                notes.append(Note(pid, float(at), None))
            else:
                began = next(each for each in reversed(notes) if each.pid == pid)
                notes[notes.index(began)] = began._replace(ended=float(at))
    return found


def overlaps(notes: dict[int, list[Note]]) -> dict[int, list[Note]]:
    """The events with which somebody began before another had ended."""
    found = {}
    for position, each in notes.items():
        runs = sorted(each, key=lambda note: note.began)
        for one, other in pairwise(runs):
            if one.ended is None or other.began < one.ended:
                found[position] = runs
    return found


def assert_effects_exactly_once(dsn: str, *listeners: str, but: tuple[int, ...] = ()) -> None:
    """Rows are counted: one for each event. None for those in *but*."""
    log = [each for each in read_log(dsn) if each.position not in but]
    for listener in listeners:
        seen = read_seen(dsn, listener)
        found = {
            "lost": len(lost(log, seen)),
            "doubled": len(doubled(seen)),
            "ghosts": len(ghosts(log, seen)),
        }
        assert found == {"lost": 0, "doubled": 0, "ghosts": 0}, (listener, len(log), found)
        assert len(seen) == len(log)


def times_begun(notes: dict[int, list[Note]]) -> Counter[int]:
    """How many events were begun once, twice and so on."""
    return Counter(len(each) for each in notes.values())
