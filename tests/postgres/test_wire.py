"""One question without a driver: right, or left to the driver."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from struct import pack
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import URL

from sa_outbox.cli.wire import Address, Declined, ask

OK = b"R" + pack("!ii", 8, 0)
READY = b"Z" + pack("!i", 5) + b"I"
SCRAM = b"R" + pack("!ii", 8 + 15, 10) + b"SCRAM-SHA-256\0\0"
CLEAR_TEXT = b"R" + pack("!ii", 8, 3)
MD5 = b"R" + pack("!ii", 12, 5) + b"salt"
ROW = b"D" + pack("!ihi", 11, 1, 1) + b"7"


@pytest.fixture
def address(migrated_url: URL) -> Address:
    url = migrated_url
    assert url.host is not None
    assert url.database is not None
    return Address(url.host, url.port or 5432, url.username or "", url.password, url.database)


@contextmanager
def role(address: Address, how: str) -> Iterator[Address]:
    """One with a password that is stored in this way."""
    name, password = f"wire_{how.replace('-', '_')}", "s3cret-Word"
    admin = f"host={address.host} port={address.port} user={address.user} dbname={address.database}"
    with psycopg.connect(admin, password=address.password, autocommit=True) as connection:
        identifier = sql.Identifier(name)
        connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(identifier))
        connection.execute(sql.SQL("SET password_encryption = {}").format(how))
        make = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(identifier, password)
        connection.execute(make)
        try:
            yield address._replace(user=name, password=password)
        finally:
            connection.execute(sql.SQL("DROP ROLE {}").format(identifier))


@contextmanager
def server(*answers: bytes) -> Iterator[tuple[Address, list[bytes]]]:
    """Says *answers*, each after it was spoken to, and hangs up. What it was told."""
    told: list[bytes] = []

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.settimeout(5)
            for each in answers:
                told.append(connection.recv(65536))
                connection.sendall(each)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield Address("127.0.0.1", listening.getsockname()[1], "me", "geheim", "shop"), told
        finally:
            thread.join(10)


def test_it_answers_with_the_value(address: Address) -> None:
    assert ask(address, "BEGIN; SELECT 'grün' || $$'$$; COMMIT") == "grün'"


def test_a_long_answer_arrives_whole(address: Address) -> None:
    assert len(ask(address, "SELECT repeat('x', 5000000)")) == 5_000_000


def test_a_password_is_proved_by_scram(address: Address) -> None:
    with role(address, "scram-sha-256") as known:
        assert ask(known, "SELECT current_user") == "wire_scram_sha_256"


@pytest.mark.parametrize(
    "query", ["", "SELECT", "SELECT 1 / 0", "SELECT 1 WHERE false", "SELECT 1, 2", "SELECT NULL"]
)
def test_another_answer_is_left_to_the_driver(address: Address, query: str) -> None:
    with pytest.raises(Declined):
        ask(address, query)


def test_two_answers_are_left_to_the_driver(address: Address) -> None:
    with pytest.raises(Declined):
        ask(address, "SELECT 1; SELECT 2")


@pytest.mark.parametrize(
    "change",
    [
        {"password": "wrong"},
        {"password": None},
        {"database": "nowhere"},
        {"user": "nobody-known"},
        {"user": "x\0y"},
        {"port": 1},
        {"port": 70000},
    ],
)
def test_whoever_is_not_let_in_leaves_it_to_the_driver(
    address: Address, change: dict[str, Any]
) -> None:
    with pytest.raises(Declined):
        ask(address._replace(**change), "SELECT 1")


def test_it_says_what_a_driver_says() -> None:
    with server(b"N", OK + READY, ROW + READY) as (address, told):
        assert ask(address, "SELECT 7") == "7"

    assert told[0] == pack("!ii", 8, 80877103)
    assert b"user\0me\0database\0shop\0" in told[1]
    assert told[2] == b"Q" + pack("!i", 13) + b"SELECT 7\0"


@pytest.mark.parametrize(
    "answers",
    [
        [b"S"],
        [b""],
        [b"N", CLEAR_TEXT],
        [b"N", MD5],
        [b"N", SCRAM, OK + READY],
        [b"N", SCRAM, b"R" + pack("!ii", 8, 12) + OK + READY],
        [b"N", b"HTTP/1.1 400 Bad Request"],
        [b"N", OK],
        [b"N", OK + READY, ROW[:7]],
        [b"N", OK + READY, b"Z" + pack("!i", -5)],
    ],
    ids=lambda answers: b"|".join(answers)[:20].hex(),
)
def test_no_password_is_said_and_nothing_is_believed(answers: list[bytes]) -> None:
    with server(*answers) as (address, told), pytest.raises(Declined):
        ask(address, "SELECT 7")

    assert not any(b"geheim" in each for each in told)
