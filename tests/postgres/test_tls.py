"""A wish for TLS is understood, or refused before anything is sent; never dropped."""

from __future__ import annotations

import anyio
import pytest
from click.testing import CliRunner
from sqlalchemy import URL, make_url

from sa_outbox.cli import main
from sa_outbox.consumer.connection.engines import connect_to
from sa_outbox.errors import ConfigError
from sa_outbox.schema.connect import dsn_of, parse_url, tls_of


@pytest.mark.parametrize(
    "given",
    [
        "postgresql://u:p@db/d?ssl=require",
        "postgresql://u:p@db/d?ssl=true",
        "postgresql://u:p@db/d?SSLMODE=require",
        "postgresql://u:p@db/d?ssl_mode=require",
        "postgresql://u:p@db/d?tls=1",
        "postgresql://u:p@db/d?encrypt=true",
        "postgresql://u:p@db/d?Encryption=on",
        "postgresql://u:p@db/d?secure=1",
        "postgresql+psycopg://u:p@db/d?ssl=require",
        "postgresql+asyncpg://u:p@db/d?tls=require",
    ],
)
def test_a_word_that_would_switch_no_tls_on_is_refused_and_the_right_one_named(given: str) -> None:
    with pytest.raises(ConfigError, match="sslmode=verify-full"):
        parse_url(given)


@pytest.mark.parametrize(
    "given",
    [
        "postgresql://u@db/d?sslmode=require",
        "postgresql://u@db/d?sslmode=verify-full&sslrootcert=ca.pem",
        "postgresql+asyncpg://u@db/d?ssl=verify-full",
        "postgresql+psycopg://u@db/d?sslmode=verify-full",
    ],
)
def test_words_that_a_driver_understands_are_taken(given: str) -> None:
    assert "sslmode=" in dsn_of(parse_url(given))
    assert "ssl=" not in dsn_of(parse_url(given))


@pytest.mark.parametrize(
    "given", ["postgresql+asyncpg://?ssl=require", "postgresql://?sslmode=require"]
)
def test_a_server_without_tls_gets_no_connection_that_asked_for_it(
    database_url: URL, given: str
) -> None:
    asked = make_url(given)
    url = database_url.set(drivername=asked.drivername, query={**database_url.query, **asked.query})

    # A socket in a file needs no TLS, and asyncpg asks for none there.
    async def connect() -> None:
        driver = await connect_to(url.set(host="127.0.0.1"))()
        driver.terminate()

    with pytest.raises(ConnectionError, match="SSL"):
        anyio.run(connect)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("postgresql://u@/d", "local"),
        ("postgresql://u@127.0.0.1/d", "local"),
        ("postgresql://u@/d?host=/run/postgresql", "local"),
        ("postgresql://u@db/d", "none"),
        ("postgresql://u@db/d?sslmode=prefer", "none"),
        ("postgresql://u@db/d?sslmode=require", "unverified"),
        ("postgresql://u@db/d?sslmode=verify-full", "verified"),
        ("postgresql+asyncpg://u@db/d?ssl=verify-full", "verified"),
    ],
)
def test_what_protects_a_connection_is_known_by_its_address(
    given: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGSSLMODE", raising=False)
    monkeypatch.delenv("PGHOST", raising=False)

    assert tls_of(make_url(given)) == found


def test_the_doctor_warns_of_a_server_that_nobody_verifies(
    migrated_url: URL, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As seen from another machine: only the name of the host decides.
    monkeypatch.setattr("sa_outbox.cli.doctor.tls_of", lambda _: "unverified")
    address = migrated_url.set(drivername="postgresql").render_as_string(hide_password=False)

    done = CliRunner().invoke(main, ["doctor", "--no-listen"], env={"DATABASE_URL": address})

    assert "warning: tls-unverified" in done.output
    assert "sslmode=verify-full" in done.output
