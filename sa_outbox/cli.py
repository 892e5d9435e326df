"""The command ``sa-outbox``.

Exit codes: 0 done, 1 it could not be done or something is wrong with the tables, 2 wrong usage.
An expected failure is one line on stderr, never a traceback, and never a password.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import asyncpg
import click
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from . import migrations, schema
from ._version import __version__
from .database_url import database_url_option, names_options, parse_database_url
from .errors import ConfigError, OutboxError
from .schema.connect import shown
from .settings import Names
from .sql import catalog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import URL, Connection

T = TypeVar("T")


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
    Deliver the events to your listeners:
        sa-outbox consume shop.app:outbox
    """


@main.command()
@database_url_option
@names_options
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
        database = parse_database_url(url)
    with _told_in_one_line(database):
        found = schema.transact(database, lambda c: schema.version(c, names))
        if to < found:
            _confirm(database, names, found, to, confirm)
        before, after = schema.transact(database, lambda c: schema.migrate(c, names, to))
    done = f"already at version {after}" if before == after else f"version {before} -> {after}"
    click.echo(f"{_called(names)} in {shown(database)}: {done}")


@main.command()
@database_url_option
@names_options
def verify(*, url: str | None, schema_name: str | None, prefix: str) -> None:
    """Say everything that is wrong with the tables, and what mends it.

    Changes nothing. Run it as the role that will write the events. Exit code 1 if there is
    anything to mend.
    """
    with _told_in_one_line():
        names = Names(schema=schema_name, prefix=prefix)
        database = parse_database_url(url)
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
@names_options
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


@main.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def consume(*, words: tuple[str, ...]) -> None:
    """Deliver events to listeners: python -m sa_outbox.consume."""
    from .consume import command  # noqa: PLC0415 - anyio and structlog concern no other command

    command.main(list(words), prog_name="sa-outbox consume")


@main.command()
@click.argument("listener")
@click.argument("partitions", type=int)
@database_url_option
@names_options
def repartition(
    *, listener: str, partitions: int, url: str | None, schema_name: str | None, prefix: str
) -> None:
    """Divide LISTENER into another number of PARTITIONS, while its consumers run.

    Nothing is lost, and no event that was settled comes again. Safe to run again.
    """
    from anyio import run  # noqa: PLC0415 - as above

    from .consumer import repartition as divide  # noqa: PLC0415
    from .outbox import Outbox  # noqa: PLC0415

    with _told_in_one_line():
        outbox, database = Outbox(schema=schema_name, prefix=prefix), parse_database_url(url)
    with _told_in_one_line(database):
        before = run(divide, outbox, database, listener, partitions)
    click.echo(f"listener {listener}: {before} -> {partitions} partitions")


@main.command()
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True, max=3600),
    help="How long the shop is open.  [default: until Ctrl-C; without a terminal, 8]",
)
def demo(*, seconds: float | None) -> None:
    """See it work: a small shop and three listeners on an embedded PostgreSQL.

    Exit code 0 if everything adds up at the end.
    """
    from .demo import run  # noqa: PLC0415 - the demo's tables concern nobody else

    with _told_in_one_line():
        adds_up = run(seconds, click.echo)
    if not adds_up:
        raise SystemExit(1)


def _print_statements(names: Names, since: int, to: int) -> None:
    steps = migrations.statements(since=since, to=to, schema=names.schema, prefix=names.prefix)
    for statement in ("BEGIN", *steps, "COMMIT"):
        click.echo(f"{statement};\n")


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
