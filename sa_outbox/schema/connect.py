"""Run something on a database URL, whatever driver it names."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from sqlalchemy import URL, create_engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from sa_outbox.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

T = TypeVar("T")

_TLS = {
    "sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslpassword", "sslnegotiation",
    "ssl_min_protocol_version", "ssl_max_protocol_version", "sslsni", "sslcompression",
    "sslcertmode", "sslcrldir",
}  # fmt: skip
"""libpq's TLS parameters."""
_WORDS_FOR_TLS = ("ssl", "tls", "encrypt", "secure")


def parse_url(url: str | URL) -> URL:
    """Parse a database URL; refuse anything but PostgreSQL. The error shows no part of it."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise ConfigError(
            "invalid database URL: it must look like postgresql://user:password@host:5432/name"
        ) from error
    if parsed.drivername == "postgres":
        parsed = parsed.set(drivername="postgresql")
    if parsed.drivername.partition("+")[0] != "postgresql":
        raise ConfigError(
            f"sa_outbox needs PostgreSQL; the database URL begins with {parsed.drivername}://"
        )
    _refuse_tls_that_is_none(parsed)
    return parsed


def dsn_of(url: URL) -> str:
    """*url* as a libpq DSN, the only form in which asyncpg reads ``sslmode`` and the like.

    With ``postgresql+asyncpg://``, SQLAlchemy passes on asyncpg's own ``ssl``; in a DSN that would
    be taken as a server setting, and the connection would not use TLS.
    """
    query = dict(url.query)
    if url.drivername == "postgresql+asyncpg" and "ssl" in query:
        query["sslmode"] = query.pop("ssl")
    return url.set(drivername="postgresql", query=query).render_as_string(hide_password=False)


def _refuse_tls_that_is_none(url: URL) -> None:
    """A driver sends an unknown parameter to the server, after the password and without TLS. So a
    misspelled TLS option must not get that far."""
    known = {*_TLS, "ssl"} if url.drivername == "postgresql+asyncpg" else _TLS
    for name in url.query:
        if name not in known and any(word in name.lower() for word in _WORDS_FOR_TLS):
            raise ConfigError(
                f"the database URL has {name!r}, which would not enable TLS: nothing was sent. "
                "Write sslmode=verify-full&sslrootcert=... (or sslmode=require, which encrypts "
                "and does not verify who answers)"
            )


def tls_of(url: URL) -> Literal["local", "verified", "unverified", "none"]:
    """How a connection to *url* is protected, judging by its parameters; ``local``: no network is
    used."""
    host = str(url.query.get("host") or url.host or os.environ.get("PGHOST") or "")
    if not host or host.startswith("/") or host in ("127.0.0.1", "::1", "localhost"):
        return "local"
    mode = url.query.get("sslmode") or url.query.get("ssl") or os.environ.get("PGSSLMODE")
    if mode in ("verify-full", "verify-ca"):
        return "verified"
    return "unverified" if mode == "require" else "none"


def shown(url: URL) -> str:
    """The URL without secrets and without the driver, for printing and pasting.

    Parameters after the ``?`` can hold secrets too, so none is shown.
    """
    bare = URL.create(
        "postgresql",
        username=url.username,
        host=url.host,
        port=url.port,
        database=url.database,
    )
    return bare.render_as_string()


def transact(url: str | URL, work: Callable[[Connection], T]) -> T:
    """Run *work* on a connection to *url*, in one READ COMMITTED transaction, and commit.

    A URL without a driver uses asyncpg, which every installation has, and may have libpq's
    parameters (``?sslmode=require``). Not for use inside a running event loop.
    """
    parsed = parse_url(url)
    options: dict[str, Any] = {"poolclass": NullPool, "isolation_level": "READ COMMITTED"}
    if parsed.drivername == "postgresql":
        # SQLAlchemy passes a URL's parameters to asyncpg unchanged.
        options["connect_args"] = {"dsn": dsn_of(parsed)}
        parsed = URL.create("postgresql+asyncpg", *parsed[1:6])
    try:
        asynchronous = parsed.get_dialect().is_async
        if asynchronous:
            return asyncio.run(_transact_async(parsed, work, options))
        engine = create_engine(parsed, **options)
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        raise ConfigError(
            f"the driver of {parsed.drivername}:// is not installed; postgresql:// alone uses "
            "asyncpg, which is"
        ) from error
    with engine.begin() as connection:
        return work(connection)


async def _transact_async(url: URL, work: Callable[[Connection], T], options: dict[str, Any]) -> T:
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415 - only when needed

    engine = create_async_engine(url, **options)
    try:
        async with engine.begin() as connection:
            return await connection.run_sync(work)
    finally:
        await engine.dispose()
