"""How commands answer: how to name a database, and failures in one line."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from sa_outbox.errors import ConfigError, OutboxError
from sa_outbox.policy.checks import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import URL

    from sa_outbox.database.names import Names


def called(names: Names) -> str:
    """``outbox``, or which one of several: ``outbox events.ob``."""
    name = names.prefix if names.schema is None else f"{names.schema}.{names.prefix}"
    return name if name == "outbox" else f"outbox {name}"


def counted(count: int, noun: str) -> str:
    """``1 dead letter``, ``2 dead letters``, ``2 deliveries``."""
    if count == 1:
        return f"{count:,} {noun}"
    return (
        f"{count:,} {noun[:-1]}ies"
        if noun.endswith("y") and noun[-2:] != "ey"
        else f"{count:,} {noun}s"
    )


class NearChoice(click.Choice[str]):
    """A choice that answers a typo with the near one, after those there are."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        said = super().get_invalid_choice_message(value, ctx)
        return said.removesuffix(".") + did_you_mean(str(value), self.choices)


@contextmanager
def cli_errors(database: URL | str | None = None) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of our output has closed it: click exits silently
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    except OutboxError as error:
        raise click.ClickException(str(error)) from error
    except Exception as error:
        reason = _reason(error)
        if reason is None:
            raise
        raise _failed(database, reason) from error


def _reason(error: Exception) -> str | None:
    """The first line of an error from the database or the connection to it; None: another fault."""
    import asyncpg  # noqa: PLC0415 - commands that need no database must not wait for them
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError  # noqa: PLC0415

    # SQLAlchemy does not wrap asyncpg's errors while connecting.
    expected = (asyncpg.PostgresError, asyncpg.InterfaceError, SQLAlchemyError, OSError)
    if not isinstance(error, expected):
        return None
    cause = error.orig or error if isinstance(error, DBAPIError) else error
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else type(cause).__name__


def _failed(database: URL | str | None, reason: str) -> click.ClickException:
    from sa_outbox.schema.connect import parse_url, shown  # noqa: PLC0415 - loads SQLAlchemy

    if database is None:
        return click.ClickException(reason)
    parsed = parse_url(database)
    if parsed.password:
        reason = reason.replace(str(parsed.password), "***")
    return click.ClickException(f"{shown(parsed)}: {reason}")


def read_catalogue(file: Any) -> dict[str, Any]:
    """The document in *file*. Raises :class:`ConfigError`."""
    try:
        found = json.load(file)
    except ValueError as error:
        raise ConfigError(f"{file.name} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{file.name} is not a catalogue: no JSON object")
    return found
