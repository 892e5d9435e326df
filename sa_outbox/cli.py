"""The command ``sa-outbox``.

Exit codes: 0 done, 1 it could not be done or something is wrong with the tables, 2 wrong usage.
An expected failure is one line on stderr, never a traceback, and never a password.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import click
from click.core import ParameterSource
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from . import migrations, schema
from ._version import __version__
from .errors import ConfigError, OutboxError
from .schema.connect import parse_url, shown
from .settings import Names
from .sql import catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import URL, Connection

T = TypeVar("T")
F = TypeVar("F", bound="Callable[..., None]")

_DATABASE_URL = click.option(
    "--database-url",
    "url",
    metavar="URL",
    envvar=["SA_OUTBOX_DATABASE_URL", "DATABASE_URL"],
    show_envvar=True,
    help="postgresql://user@host:5432/name. Better in the environment: everybody on the machine "
    "can read a command line.",
)


def _names_options(command: F) -> F:
    for option in (
        click.option(
            "--prefix",
            default="outbox",
            show_default=True,
            envvar="SA_OUTBOX_PREFIX",
            show_envvar=True,
            help="Name of the log, and beginning of the other tables' names.",
        ),
        click.option(
            "--schema",
            "schema_name",
            envvar="SA_OUTBOX_SCHEMA",
            show_envvar=True,
            help="Schema of the tables. Without it: where the search_path leads.",
        ),
    ):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="sa-outbox")
def main() -> None:
    """The transactional outbox for SQLAlchemy on PostgreSQL.

    \b
    See it work, on a PostgreSQL of its own:
        sa-outbox demo
    Make or update the tables, without Alembic:
        export SA_OUTBOX_DATABASE_URL=postgresql://user:password@host/name
        sa-outbox migrate
    In an Alembic history of your own:
        sa-outbox revision && alembic upgrade head
    Is everything in order?
        sa-outbox verify
    """


@main.command()
@_DATABASE_URL
@_names_options
@click.option(
    "--to",
    type=click.IntRange(0, migrations.LATEST),
    default=migrations.LATEST,
    show_default=True,
    help="Version to go to. 0 drops the tables and every event in them.",
)
@click.option("--sql", is_flag=True, help="Print the statements; connect to nothing.")
@click.option(
    "--since",
    type=click.IntRange(0, migrations.LATEST),
    default=0,
    show_default=True,
    help="With --sql: the version to start from.",
)
@click.option(
    "--confirm",
    metavar="DATABASE",
    help="Going down: the name of the database, typed here instead of when asked.",
)
def migrate(
    *,
    url: str | None,
    schema_name: str | None,
    prefix: str,
    to: int,
    sql: bool,
    since: int,
    confirm: str | None,
) -> None:
    """Make the tables, or bring them to another version.

    All in one transaction; safe to run again, and from several deploys at once.

    \b
    Examples:
        sa-outbox migrate --schema events
        sa-outbox migrate --sql > outbox.sql
        sa-outbox migrate --to 0            (drops everything; asks first)
    """
    with _told_in_one_line():
        names = Names(schema=schema_name, prefix=prefix)
        if sql:
            _print_statements(names, since, to)
            return
        database = _database(url)
    with _told_in_one_line(database):
        found = schema.transact(database, lambda c: schema.version(c, names))
        if to < found:
            _confirm(database, names, found, to, confirm)
        before, after = schema.transact(database, lambda c: schema.migrate(c, names, to))
    done = f"already at version {after}" if before == after else f"version {before} -> {after}"
    click.echo(f"{_called(names)} in {shown(database)}: {done}")


@main.command()
@_DATABASE_URL
@_names_options
def verify(*, url: str | None, schema_name: str | None, prefix: str) -> None:
    """Say everything that is wrong with the tables, and what mends it.

    Changes nothing. Run it as the role that will write the events. Exit code 1 if there is
    anything to mend.
    """
    with _told_in_one_line():
        names = Names(schema=schema_name, prefix=prefix)
        database = _database(url)
    with _told_in_one_line(database):
        found = schema.transact(database, lambda c: schema.problems(c, names))
    for problem in found:
        click.echo(f"{problem.what}.\n    {problem.mend}", err=True)
    if found:
        raise click.exceptions.Exit(1)
    click.echo(f"{_called(names)} in {shown(database)}: nothing is wrong")


@main.command()
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    default=Path("alembic.ini"),
    show_default=True,
    envvar="ALEMBIC_CONFIG",
    show_envvar=True,
    help="Your Alembic configuration.",
)
@_names_options
@click.option("-m", "--message", help='Title of the revision.  [default: "create outbox"]')
@click.option("--version-path", help="Folder for the revision, if your history has several.")
def revision(
    *,
    config: Path,
    schema_name: str | None,
    prefix: str,
    message: str | None,
    version_path: str | None,
) -> None:
    """Write a revision into your own Alembic history.

    It stands on your one head and becomes the new one. After an update of this package, run it
    again: it writes the missing step, or says that there is none.
    """
    from .schema.revision import write_revision  # noqa: PLC0415 - alembic takes its time to load

    with _told_in_one_line():
        names = Names(schema=schema_name, prefix=prefix)
        written = write_revision(config, names, message=message, version_path=version_path)
    if written.path is None:
        click.echo(f"nothing to write: this history brings {_called(names)} to {written.to}")
        return
    options = ", ".join(
        f'{name}="{value}"'
        for name, value in (("schema", names.schema), ("prefix", names.prefix))
        if value not in (None, "outbox")
    )
    click.echo(
        f"{written.path}\n\n"
        "So that autogenerate leaves these tables alone, have in your env.py:\n\n"
        "    from sa_outbox import schema\n\n"
        f"    context.configure(..., include_name=schema.include_name({options}))\n\n"
        "Then: alembic upgrade head"
    )


@main.command()
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True, max=3600),
    default=5,
    show_default=True,
    help="How long the shop is open.",
)
def demo(*, seconds: float) -> None:
    """See it work: a small shop on an embedded PostgreSQL. Exit code 0 if all is as it should."""
    from .demo import run  # noqa: PLC0415 - the demo's tables concern nobody else

    with _told_in_one_line():
        summary = asyncio.run(run(seconds, click.echo))
    click.echo(summary.told())
    if not summary.holds:
        raise SystemExit(1)


def _print_statements(names: Names, since: int, to: int) -> None:
    steps = migrations.statements(since=since, to=to, schema=names.schema, prefix=names.prefix)
    for statement in ("BEGIN", *steps, "COMMIT"):
        click.echo(f"{statement};\n")


def _database(url: str | None) -> URL:
    if not url:
        raise click.UsageError("which database? Set SA_OUTBOX_DATABASE_URL, or say --database-url")
    database = parse_url(url)
    source = click.get_current_context().get_parameter_source("url")
    if database.password is not None and source is ParameterSource.COMMANDLINE:
        click.echo(
            "warning: a password on the command line can be read by everybody on this machine; "
            "SA_OUTBOX_DATABASE_URL or PGPASSWORD can not",
            err=True,
        )
    return database


def _confirm(database: URL, names: Names, found: int, to: int, typed: str | None) -> None:
    """Have the person type the name of the database that is about to lose something."""

    def identity(connection: Connection) -> tuple[str, str]:
        session = connection.execute(catalog.this_session()).one()
        return session.database, session.role

    name, role = schema.transact(database, identity)
    what = "DROPS its tables with every event in them" if to == 0 else "takes them back"
    click.echo(
        f"{_called(names)} in database {name!r}, {shown(database)}, as role {role!r}:\n"
        f"version {found} -> {to} {what}.",
        err=True,
    )
    if typed is None:
        typed = click.prompt("Type the name of the database to go on", err=True)
    if typed != name:
        raise click.ClickException(f"{typed!r} is not the name of the database: nothing was done")


def _called(names: Names) -> str:
    return f"outbox {names.prefix if names.schema is None else f'{names.schema}.{names.prefix}'}"


@contextmanager
def _told_in_one_line(database: URL | None = None) -> Iterator[None]:
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
