"""``migrate``, ``verify`` and ``revision``: the tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sa_outbox import migrations, schema
from sa_outbox.schema.connect import shown
from sa_outbox.schema.url import database_url_option, names_options, parse_database_url
from sa_outbox.settings import Names
from sa_outbox.sql.server import catalog

from .answers import called, cli_errors

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection


@click.command()
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
    help="Going down: the name of the database, instead of typing it when asked.",
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
    """Create the tables, or bring them to another version.

    All in one transaction; safe to run again, and from several deploys at once.

    \b
    Examples:
        sa-outbox migrate --schema events
        sa-outbox migrate --sql > outbox.sql
        sa-outbox migrate --to 0            (drops everything; asks first)
    """
    with cli_errors():
        names = Names(schema=schema_name, prefix=prefix)
        if sql:
            _print_statements(names, since, to)
            return
        database = parse_database_url(url)
    with cli_errors(database):
        found = schema.transact(database, lambda c: schema.version(c, names))
        if to < found:
            _confirm(database, names, found, to, confirm)
        before, after = schema.transact(database, lambda c: schema.migrate(c, names, to))
    done = f"already at version {after}" if before == after else f"version {before} -> {after}"
    click.echo(f"{called(names)} in {shown(database)}: {done}")


@click.command()
@database_url_option
@names_options
def verify(*, url: str | None, schema_name: str | None, prefix: str) -> None:
    """Report every problem with the tables, and how to fix it.

    Changes nothing. Run it as the role that will write the events. Exit code 1 if there is
    anything to fix.
    """
    with cli_errors():
        names = Names(schema=schema_name, prefix=prefix)
        database = parse_database_url(url)
    with cli_errors(database):
        found = schema.transact(database, lambda c: schema.problems(c, names))
        warned = schema.transact(database, lambda c: schema.warnings(c, names))
    for warning in warned:
        fix = warning.fix.replace("\n", "\n    ")
        click.echo(f"Warning: {warning.what}.\n    {fix}", err=True)
    for problem in found:
        click.echo(f"{problem.what}.\n    {problem.fix}", err=True)
    if found:
        raise click.exceptions.Exit(1)
    click.echo(f"{called(names)} in {shown(database)}: nothing is wrong")


@click.command()
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

    It follows your single head and becomes the new one. After an update of this package, run it
    again: it writes the missing step, or reports that there is none.
    """
    from sa_outbox.schema.revision import write_revision  # noqa: PLC0415 - alembic takes its time to load

    with cli_errors():
        names = Names(schema=schema_name, prefix=prefix)
        written = write_revision(config, names, message=message, version_path=version_path)
    if written.path is None:
        click.echo(f"nothing to write: this history brings {called(names)} to {written.to}")
        return
    options = ", ".join(
        f'{name}="{value}"'
        for name, value in (("schema", names.schema), ("prefix", names.prefix))
        if value not in (None, "outbox")
    )
    click.echo(
        f"{written.path}\n\n"
        "Put this into your env.py, so that autogenerate leaves these tables alone:\n\n"
        "    from sa_outbox import schema\n\n"
        f"    context.configure(..., include_name=schema.include_name({options}))\n\n"
        "Then: alembic upgrade head"
    )


def _print_statements(names: Names, since: int, to: int) -> None:
    steps = migrations.statements(since=since, to=to, schema=names.schema, prefix=names.prefix)
    for statement in ("BEGIN", *steps, "COMMIT"):
        click.echo(f"{statement};\n")


def _confirm(database: URL, names: Names, found: int, to: int, typed: str | None) -> None:
    """Make the operator type the name of the database that is about to lose something."""

    def identity(connection: Connection) -> tuple[str, str]:
        session = connection.execute(catalog.this_session()).one()
        return session.database, session.role

    name, role = schema.transact(database, identity)
    what = "DROPS its tables with every event in them" if to == 0 else "reverts them"
    click.echo(
        f"{called(names)} in database {name!r}, {shown(database)}, as role {role!r}:\n"
        f"version {found} -> {to} {what}.",
        err=True,
    )
    if typed is None:
        typed = click.prompt("Type the name of the database to continue", err=True)
    if typed != name:
        raise click.ClickException(f"{typed!r} is not the name of the database: nothing was done")
