"""The statements of a version never change once they are released."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox import migrations
from sa_outbox.errors import ConfigError
from sa_outbox.migrations.identifiers import MAX_PREFIX_BYTES, check_names
from sa_outbox.settings import Names

# Once a version is released, its line in this file is never edited: a revision that somebody wrote
# years ago must make today what it made then. A change of the tables is a new version.
FROZEN = json.loads(Path(__file__).with_name("frozen.json").read_text())

STEPS = [
    (since, to)
    for version in range(1, migrations.LATEST + 1)
    for since, to in ((version - 1, version), (version, version - 1))
]


class Recorder:
    """In the place of ``alembic.op``."""

    def __init__(self) -> None:
        self.executed: list[str] = []

    def execute(self, sqltext: str) -> None:
        self.executed.append(sqltext)


@pytest.mark.parametrize(("since", "to"), STEPS)
@pytest.mark.parametrize("schema", [None, "events"])
def test_the_statements_of_a_version_are_what_was_released(
    since: int, to: int, schema: str | None
) -> None:
    statements = migrations.statements(since=since, to=to, schema=schema, prefix="outbox")

    found = hashlib.sha256("\0".join(statements).encode()).hexdigest()

    assert found == FROZEN[f"{since} -> {to}, schema {schema}"]


def test_every_frozen_line_belongs_to_a_step() -> None:
    assert len(FROZEN) == 2 * len(STEPS)


@pytest.mark.parametrize(("since", "to"), STEPS)
def test_no_statement_has_what_a_driver_or_alembic_would_take_for_a_parameter(
    since: int, to: int
) -> None:
    for statement in migrations.statements(since=since, to=to, schema="s", prefix="p"):
        assert ":" not in statement
        assert "%" not in statement
        assert "\\" not in statement


@pytest.mark.parametrize(("since", "to"), STEPS)
def test_each_element_is_one_statement(since: int, to: int) -> None:
    for statement in migrations.statements(since=since, to=to, schema="s", prefix="p"):
        assert ";" not in statement or statement.startswith("DO $outbox$")
        assert statement == statement.strip()


def test_upgrade_and_downgrade_execute_statement_by_statement() -> None:
    up, down = Recorder(), Recorder()

    migrations.upgrade(up, since=0, to=1, schema="s")
    migrations.downgrade(down, since=1, to=0, schema="s")

    assert up.executed == list(migrations.statements(since=0, to=1, schema="s"))
    assert down.executed == list(migrations.statements(since=1, to=0, schema="s"))


@pytest.mark.parametrize(
    ("since", "to"), [(0, 0), (1, 1), (1, 0), (0, migrations.LATEST + 1), (-1, 1)]
)
def test_upgrade_refuses_versions_that_lead_nowhere(since: int, to: int) -> None:
    op = Recorder()
    with pytest.raises(ConfigError):
        migrations.upgrade(op, since=since, to=to)
    assert op.executed == []


@pytest.mark.parametrize(("since", "to"), [(0, 0), (0, 1), (migrations.LATEST + 1, 0), (1, -1)])
def test_downgrade_refuses_versions_that_lead_nowhere(since: int, to: int) -> None:
    op = Recorder()
    with pytest.raises(ConfigError):
        migrations.downgrade(op, since=since, to=to)
    assert op.executed == []


@pytest.mark.parametrize(
    "name",
    [
        'x"; DROP TABLE y; --',
        "x'; DROP TABLE y; --",
        "$outbox$",
        "",
        "a b",
        "a.b",
        "1a",
        "pg_outbox",
        "a\n",
        "é",
        "a" * 64,
        None,
        7,
    ],
)
def test_a_name_that_is_not_a_plain_identifier_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        migrations.statements(since=0, to=1, prefix=name)
    if name is not None:
        with pytest.raises(ConfigError):
            migrations.statements(since=0, to=1, schema=name)


@given(
    schema=st.none() | st.text(max_size=70) | st.from_regex(r"[A-Za-z_]\w{0,70}", fullmatch=True),
    prefix=st.text(max_size=40) | st.from_regex(r"[A-Za-z_]\w{0,40}", fullmatch=True),
)
def test_migrations_and_settings_refuse_the_same_names(schema: str | None, prefix: str) -> None:
    assert _accepts(lambda: check_names(schema, prefix)) == _accepts(
        lambda: Names(schema=schema, prefix=prefix, channel="c")
    )


def test_the_longest_prefix_is_the_one_settings_allow() -> None:
    Names(prefix="p" * MAX_PREFIX_BYTES)
    with pytest.raises(ConfigError):
        Names(prefix="p" * (MAX_PREFIX_BYTES + 1))


def _accepts(make: object) -> bool:
    assert callable(make)
    try:
        make()
    except ConfigError:
        return False
    return True
