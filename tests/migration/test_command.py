"""``sa-outbox migrate`` and ``verify`` on a database."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from sqlalchemy import text

from sa_outbox import schema
from sa_outbox.cli import main
from sa_outbox.settings import Names

if TYPE_CHECKING:
    from click.testing import Result
    from sqlalchemy import URL, Engine


@pytest.fixture(autouse=True)
def _environment(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SA_OUTBOX_DATABASE_URL", address)


def run(*words: str, typed: str | None = None) -> Result:
    return CliRunner().invoke(main, list(words), input=typed)


def test_migrate_makes_the_tables_and_says_so_again(url: URL) -> None:
    first, second = run("migrate"), run("migrate")

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert first.stdout.endswith("version 0 -> 1\n")
    assert second.stdout.endswith("already at version 1\n")
    assert first.stderr == ""
    assert f"/{url.database}" in first.stdout


def test_verify_tells_what_is_missing_then_that_nothing_is(address: str) -> None:
    before = run("verify", "--schema", "events")
    assert before.exit_code == 1
    assert "There is no outbox named 'outbox' in schema 'events'" in before.stderr
    assert "sa-outbox migrate --database-url postgresql://" in before.stderr
    assert "--schema events" in before.stderr

    assert run("migrate", "--schema", "events").exit_code == 0
    after = run("verify", "--schema", "events")
    assert after.exit_code == 0
    assert "nothing is wrong" in after.stdout


def test_the_names_can_come_from_the_environment(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SA_OUTBOX_SCHEMA", "events")
    monkeypatch.setenv("SA_OUTBOX_PREFIX", "ob")

    assert run("migrate").exit_code == 0

    with engine.connect() as connection:
        assert schema.version(connection, Names(schema="events", prefix="ob")) == 1


def test_the_more_particular_variable_wins(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nothing")
    assert run("migrate").exit_code == 0

    monkeypatch.delenv("SA_OUTBOX_DATABASE_URL")
    monkeypatch.setenv("DATABASE_URL", address)
    assert run("verify").exit_code == 0


@pytest.mark.parametrize("typed", ["", "y\n", "outbox\n"])
def test_going_down_needs_the_name_of_the_database(engine: Engine, typed: str) -> None:
    run("migrate")

    result = run("migrate", "--to", "0", typed=typed)

    assert result.exit_code == 1
    assert "DROPS its tables with every event" in result.stderr
    with engine.connect() as connection:
        assert schema.version(connection, Names()) == 1


def test_going_down_prints_which_database_it_is_and_drops(engine: Engine, url: URL) -> None:
    run("migrate")

    result = run("migrate", "--to", "0", typed=f"{url.database}\n")

    assert result.exit_code == 0
    assert f"database {url.database!r}" in result.stderr
    assert f"as role {url.username!r}" in result.stderr
    assert "version 1 -> 0" in result.stdout
    with engine.connect() as connection:
        assert schema.version(connection, Names()) == 0


def test_a_script_can_give_the_name_beforehand(url: URL) -> None:
    run("migrate")
    assert run("migrate", "--to", "0", "--confirm", "another").exit_code == 1
    assert run("migrate", "--to", "0", "--confirm", str(url.database)).exit_code == 0


def test_going_to_where_it_is_asks_nothing() -> None:
    assert run("migrate", "--to", "0").exit_code == 0


def test_printed_statements_make_the_tables(engine: Engine) -> None:
    printed = run("migrate", "--sql", "--schema", "events").stdout

    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(printed)
        schema.verify(connection, Names(schema="events"))

    down = run("migrate", "--sql", "--schema", "events", "--since", "1", "--to", "0").stdout
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(down)
        assert schema.version(connection, Names(schema="events")) == 0


@pytest.mark.parametrize(
    "drivername", ["postgresql", "postgresql+asyncpg", "postgresql+psycopg", "postgresql+psycopg2"]
)
class TestFailures:
    """One line, exit code 1, no traceback, no password."""

    def told(self, url: URL, drivername: str, *words: str) -> str:
        secret = url.set(drivername=drivername, password="geheim123")
        address = secret.render_as_string(hide_password=False)
        result = CliRunner().invoke(
            main, list(words or ("verify",)), env={"SA_OUTBOX_DATABASE_URL": address}
        )
        assert result.exit_code == 1
        assert isinstance(result.exception, SystemExit)
        assert len(result.stderr.splitlines()) == 1
        assert result.stderr.startswith("Error: postgresql://")
        assert "geheim123" not in result.output
        return result.stderr

    def test_a_server_that_is_not_there(self, url: URL, drivername: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        closed = url.set(host="127.0.0.1", port=port)
        assert str(port) in self.told(closed, drivername)

    def test_a_role_that_does_not_exist(self, url: URL, drivername: str) -> None:
        told = self.told(url.set(username="nobody_here"), drivername)
        assert "nobody_here" in told

    def test_a_host_that_has_no_address(self, url: URL, drivername: str) -> None:
        self.told(url.set(host="nowhere.invalid"), drivername)


def test_a_database_that_does_not_exist(url: URL) -> None:
    address = url.set(database="not_there").render_as_string(hide_password=False)
    result = CliRunner().invoke(main, ["migrate"], env={"SA_OUTBOX_DATABASE_URL": address})
    assert result.exit_code == 1
    assert '"not_there" does not exist' in result.stderr


def test_an_error_of_the_server_while_migrating_is_one_line(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TYPE outbox_p0 AS (x integer)"))

    result = run("migrate")

    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert "outbox_p0" in result.stderr


def test_a_table_of_somebody_else_is_told(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE outbox (mine integer)"))

    result = run("migrate")

    assert result.exit_code == 1
    assert "not made by sa_outbox" in " ".join(result.stderr.split())


def test_a_password_on_the_command_line_is_warned_of(url: URL) -> None:
    address = url.set(password=url.password or "x").render_as_string(hide_password=False)
    result = run("migrate", "--database-url", address)
    assert result.exit_code == 0
    assert "warning: everybody on this machine can read a password" in result.stderr
    assert address not in result.output


def test_the_command_and_the_module_are_the_same(address: str) -> None:
    for words in (["-m", "sa_outbox"], ["-c", "from sa_outbox.cli import main; main()"]):
        done = subprocess.run(
            [sys.executable, *words, "migrate"],
            env={"SA_OUTBOX_DATABASE_URL": address},
            capture_output=True,
            text=True,
            check=False,
            timeout=50,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
