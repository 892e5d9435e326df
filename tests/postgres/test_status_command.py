"""``sa-outbox status`` by its short way: the answers of the longer one, and sooner."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import URL, Engine, text

from sa_outbox.cli import main

DIFFER = {"at", "port", "lag_seconds", "lease_seconds", "seconds", "transaction", "pid"}
"""Moments and spans of two questions that follow each other, and who asked."""


@pytest.fixture
def address(engine: Engine, migrated_url: URL) -> Iterator[str]:
    """Of a database in which there is something of everything."""
    writer = engine.connect()
    for statement in (
        (
            "INSERT INTO outbox (event_id, event_type, payload)"
            " SELECT gen_random_uuid(), 'a', '{}' FROM generate_series(1, 10)"
        ),
        (
            "INSERT INTO outbox_listeners (name, last_processed_id, gaps, locked_by,"
            " lease_expires_at, last_error, last_error_code, last_error_at, paused_at) VALUES"
            " ('mail', 7, '[[2, 3]]', 'me', clock_timestamp() + interval '1 hour', 'no', 'boom',"
            " clock_timestamp(), clock_timestamp()), ('strict', 10, '[]', NULL, NULL, NULL, NULL,"
            " NULL, NULL)"
        ),
        (
            "INSERT INTO outbox_deliveries (listener, position, event_id, event_type, state,"
            " due_at) VALUES ('mail', 1, gen_random_uuid(), 'a', 'parked', clock_timestamp())"
        ),
        (
            "INSERT INTO outbox_ranges (listener, last_processed_id, gaps, locked_by,"
            " lease_expires_at) VALUES ('mail', 9, '[[8, 9]]', NULL, NULL)"
        ),
        (
            "INSERT INTO outbox_consumers (owner, listeners, queues, expires_at) VALUES"
            " ('me', ARRAY['mail'], ARRAY['q'], clock_timestamp() + interval '1 hour')"
        ),
        (
            "INSERT INTO outbox_dead_letters (listener, position, event_id, event_type, payload,"
            " event_created_at, reason) VALUES"
            " ('gone', 1, gen_random_uuid(), 'a', '1', clock_timestamp(), 'attempts')"
        ),
    ):
        writer.execute(text(statement))
    writer.commit()
    # An open writer, which the overview names.
    writer.execute(text("SET application_name = 'till'"))
    one = "INSERT INTO outbox (event_id, event_type, payload) VALUES (gen_random_uuid(), 'a', '1')"
    writer.execute(text(one))
    found = migrated_url.set(drivername="postgresql").render_as_string(hide_password=False)
    yield found
    writer.rollback()
    writer.close()


def status(*words: str, **environment: str) -> Result:
    return CliRunner().invoke(main, ["status", *words], env=environment)


def lasting(value: Any) -> Any:
    """What two answers have in common."""
    if isinstance(value, dict):
        return {name: lasting(each) for name, each in value.items() if name not in DIFFER}
    return [lasting(each) for each in value] if isinstance(value, list) else value


def test_both_ways_answer_the_same(address: str) -> None:
    short = status("--json", SA_OUTBOX_DATABASE_URL=address)
    by_driver = address.replace("postgresql://", "postgresql+psycopg://")
    long = status("--json", SA_OUTBOX_DATABASE_URL=by_driver)

    assert (short.exit_code, long.exit_code) == (0, 0), short.output + long.output
    told = lasting(json.loads(short.stdout))
    assert told == lasting(json.loads(long.stdout))
    assert [each["name"] for each in told["listeners"]] == ["mail", "strict", "gone"]
    assert told["holders"][0]["application_name"] == "till"
    assert told["listeners"][0]["ranges"]["events"] == 2


def test_a_table_for_people_is_the_same_too(address: str) -> None:
    shown = address.partition("@")[2]
    for url in (address, address.replace("postgresql://", "postgresql+asyncpg://")):
        told = status(SA_OUTBOX_DATABASE_URL=url).stdout
        assert told.startswith("outbox in postgresql://")
        assert shown in told.splitlines()[0]


HEAVY = {"sqlalchemy.orm", "sqlalchemy.ext.asyncio", "sa_outbox.outbox", "sa_outbox.producer"}
NEEDED = {"asyncpg", "click", "cython_runtime", "greenlet", "sa_outbox", "sqlalchemy"}
NEEDED |= {"typing_extensions"}
"""May be loaded besides the standard library."""
SHORT_WAY = """
import sys

before = {*sys.modules}
from asyncio.base_events import BaseEventLoop

loops = []
begin = BaseEventLoop.__init__
BaseEventLoop.__init__ = lambda self: (loops.append(self), begin(self))[1]
from sa_outbox.cli import main
main(["status", "--json"], standalone_mode=False)
print(len(loops), *(sys.modules.keys() - before), file=sys.stderr)
"""


def test_the_short_way_loads_no_more_than_it_needs_and_runs_one_event_loop(address: str) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-c", SHORT_WAY],
        env={**os.environ, "SA_OUTBOX_DATABASE_URL": address},
        capture_output=True,
        text=True,
        check=True,
    )

    loops, *modules = done.stderr.split()
    packages = {each.partition(".")[0] for each in modules} - sys.stdlib_module_names
    assert sorted(HEAVY & {*modules}) == []
    assert sorted(each for each in packages - NEEDED if not each.startswith("_")) == []
    assert loops == "1"
    assert len(json.loads(done.stdout)["listeners"]) == 3


def test_missing_tables_are_told_with_what_makes_them(new_database: Callable[[], URL]) -> None:
    address = new_database().render_as_string(hide_password=False)

    told = status("--json", "--schema", "elsewhere", SA_OUTBOX_DATABASE_URL=address)

    assert told.exit_code == 1
    assert "sa-outbox migrate" in told.stderr
    assert "--schema elsewhere" in told.stderr
    assert told.stdout == ""


@pytest.mark.parametrize("wrong", ["password", "database", "port"])
def test_a_database_that_can_not_be_asked_is_told_in_one_line(
    migrated_url: URL, wrong: str
) -> None:
    changed = {
        "password": migrated_url.set(password="geheim"),
        "database": migrated_url.set(database="nowhere"),
        "port": migrated_url.set(port=1, password="geheim"),
    }[wrong].set(drivername="postgresql")

    told = status(SA_OUTBOX_DATABASE_URL=changed.render_as_string(hide_password=False))

    assert told.exit_code == 1
    assert told.stderr.startswith("Error: postgresql://")
    assert len(told.stderr.splitlines()) == 1
    assert "geheim" not in told.output
    assert str(migrated_url.password) not in told.output


def test_a_password_on_the_command_line_is_warned_of(address: str) -> None:
    told = status("--json", "--database-url", address)

    assert told.exit_code == 0
    assert "can read a password" in told.stderr
