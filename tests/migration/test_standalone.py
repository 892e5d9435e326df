"""``alembic upgrade head`` in this repository, and the other ways beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import alembic
import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import text

from sa_outbox import migrations, schema
from sa_outbox.settings import Names
from tests.migration.snapshot import snapshot

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from sqlalchemy import URL, Engine

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _address(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SA_OUTBOX_DATABASE_URL", address)
    monkeypatch.setattr(sys, "path", list(sys.path))


def config(**named: str) -> Config:
    arguments = [f"{name}={value}" for name, value in named.items()]
    found = Config(str(ROOT / "alembic.ini"))
    found.cmd_opts = _options(arguments)
    return found


def _options(arguments: list[str]) -> Namespace:
    from argparse import Namespace  # noqa: PLC0415

    return Namespace(x=arguments)


def revision_in(engine: Engine, table: str) -> list[str]:
    with engine.connect() as connection:
        return list(connection.scalars(text(f"SELECT version_num FROM {table}")))


def test_the_folder_alembic_does_not_hide_the_real_one() -> None:
    assert not (ROOT / "alembic/__init__.py").exists()
    assert alembic.__file__ is not None
    assert ROOT / "alembic" not in Path(alembic.__file__).parents


def test_there_is_one_revision_per_version() -> None:
    scripts = ScriptDirectory.from_config(config()).walk_revisions()
    versions = [script.revision for script in scripts]
    assert versions == [f"{number:04d}" for number in range(migrations.LATEST, 0, -1)]


@pytest.mark.parametrize("named", [{}, {"schema": "events"}, {"schema": "Ev", "prefix": "ob"}])
def test_upgrade_makes_what_migrate_makes(
    engine: Engine, named: dict[str, str], new_database: Callable[[], URL]
) -> None:
    names = Names(schema=named.get("schema"), prefix=named.get("prefix", "outbox"))
    where, prefix = names.schema or "public", names.prefix

    command.upgrade(config(**named), "head")
    command.check(config(**named))

    other = new_database()
    schema.transact(other, lambda connection: schema.migrate(connection, names))
    expected = schema.transact(
        other.set(drivername="postgresql+psycopg"),
        lambda connection: snapshot(connection, where, prefix=prefix),
    )
    with engine.connect() as connection:
        assert snapshot(connection, where, prefix=prefix) == expected
        schema.verify(connection, names)
    assert revision_in(engine, f'"{where}"."{prefix}_alembic_version"') == ["0001"]

    command.downgrade(config(**named), "base")
    with engine.connect() as connection:
        assert schema.version(connection, names) == 0
    assert revision_in(engine, f'"{where}"."{prefix}_alembic_version"') == []


def test_tables_made_by_migrate_are_taken_over(engine: Engine, address: str) -> None:
    schema.transact(address, lambda connection: schema.migrate(connection, Names()))

    command.upgrade(config(), "head")

    assert revision_in(engine, "outbox_alembic_version") == ["0001"]


def test_tables_taken_away_by_migrate_are_made_again(engine: Engine, address: str) -> None:
    command.upgrade(config(), "head")
    schema.transact(address, lambda connection: schema.migrate(connection, Names(), 0))

    command.upgrade(config(), "head")

    with engine.connect() as connection:
        assert schema.problems(connection, Names()) == []


def test_tables_newer_than_this_release_are_left_alone(engine: Engine) -> None:
    command.upgrade(config(), "head")
    with engine.begin() as connection:
        connection.execute(text("UPDATE outbox_meta SET schema_version = 99"))

    with pytest.raises(SystemExit, match="update sa_outbox"):
        command.upgrade(config(), "head")


@pytest.mark.parametrize("options", [[], ["-x", "schema=events"]])
def test_the_command_works_online_and_as_sql(
    engine: Engine, options: list[str], new_database: Callable[[], URL]
) -> None:
    names = Names(schema="events" if options else None)
    where = names.schema or "public"
    nowhere = {k: v for k, v in os.environ.items() if not k.endswith("DATABASE_URL")}

    printed = _alembic(*options, "upgrade", "head", "--sql", env=nowhere)
    other = new_database().set(drivername="postgresql+psycopg")
    url = other.set(drivername="postgresql").render_as_string(hide_password=False)
    _alembic(*options, "-x", f"url={url}", "upgrade", "head", env=nowhere)
    with engine.begin() as connection:
        connection.exec_driver_sql(printed.removeprefix("BEGIN;").replace("COMMIT;", ""))

    with engine.connect() as connection:
        assert snapshot(connection, where) == schema.transact(
            other, lambda online: snapshot(online, where)
        )
    assert revision_in(engine, f"{where}.outbox_alembic_version") == ["0001"]


def test_a_missing_address_is_told_without_a_traceback() -> None:
    nowhere = {k: v for k, v in os.environ.items() if not k.endswith("DATABASE_URL")}
    done = _run("upgrade", "head", env=nowhere)
    assert done.returncode == 1
    assert done.stderr.strip().startswith("which database?")


def _alembic(*words: str, env: dict[str, str]) -> str:
    done = _run(*words, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _run(*words: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "alembic", *words],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
