"""How commands answer: what a database is called, and failures in one line."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import asyncpg
import click
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from sa_outbox.errors import ConfigError, OutboxError
from sa_outbox.schema.connect import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import URL

    from sa_outbox.settings import Names


def called(names: Names) -> str:
    return f"outbox {names.prefix if names.schema is None else f'{names.schema}.{names.prefix}'}"


@contextmanager
def told_in_one_line(database: URL | None = None) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of our output has seen enough: click ends without a word
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    except OutboxError as error:
        raise click.ClickException(str(error)) from error
    except DBAPIError as error:
        raise _failed(database, error.orig or error) from error
    except (asyncpg.PostgresError, asyncpg.InterfaceError, SQLAlchemyError, OSError) as error:
        # asyncpg's errors while connecting are not wrapped by SQLAlchemy.
        raise _failed(database, error) from error


def _failed(database: URL | None, error: BaseException) -> click.ClickException:
    lines = str(error).strip().splitlines()
    reason = lines[0] if lines else type(error).__name__
    if database is None:
        return click.ClickException(reason)
    if database.password:
        reason = reason.replace(str(database.password), "***")
    return click.ClickException(f"{shown(database)}: {reason}")
