"""Run something on a database URL, whatever driver it names."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import URL, create_engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from sa_outbox.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

T = TypeVar("T")


def parse_url(url: str | URL) -> URL:
    """Understand a database URL; refuse what is not PostgreSQL. No part of it is in the error."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise ConfigError(
            "the database URL is not one: it looks like postgresql://user:password@host:5432/name"
        ) from error
    if parsed.drivername == "postgres":
        parsed = parsed.set(drivername="postgresql")
    if parsed.drivername.partition("+")[0] != "postgresql":
        raise ConfigError(
            f"sa_outbox needs PostgreSQL; the database URL begins with {parsed.drivername}://"
        )
    return parsed


def shown(url: URL) -> str:
    """The URL without anything secret, and without the driver: to print, and to paste.

    Parameters behind the ``?`` can hold secrets too, so none is shown.
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

    A URL without a driver is connected to by asyncpg, which every installation has, and may have
    the parameters libpq knows (``?sslmode=require``). Not for use inside a running event loop.
    """
    parsed = parse_url(url)
    options: dict[str, Any] = {"poolclass": NullPool, "isolation_level": "READ COMMITTED"}
    if parsed.drivername == "postgresql":
        # SQLAlchemy hands the parameters of a URL to asyncpg as they are called; asyncpg itself
        # reads the words of libpq, but only in a dsn.
        dsn = parsed.render_as_string(hide_password=False)
        options["connect_args"] = {"dsn": dsn}
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
