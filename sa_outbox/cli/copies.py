"""``adopt``: a restored or cloned database is meant to act on the world."""

from __future__ import annotations

from getpass import getuser

import click

from sa_outbox import schema
from sa_outbox.database_url import database_url_option, names_options, parse_database_url
from sa_outbox.schema.connect import shown
from sa_outbox.schema.identity import adopt as adopt_copy
from sa_outbox.schema.identity import find_home
from sa_outbox.settings import Names

from .answers import called, told_in_one_line


@click.command()
@database_url_option
@names_options
@click.option(
    "--confirm",
    metavar="DATABASE",
    help="The name of the database, typed here instead of when asked.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--by", metavar="NAME", help="Who, for the audit.  [default: the user of this machine]"
)
def adopt(
    *,
    url: str | None,
    schema_name: str | None,
    prefix: str,
    confirm: str | None,
    yes: bool,
    by: str | None,
) -> None:
    """Let the external listeners of a copied database run.

    After a dump was restored, or a database cloned, listeners declared external=True and relays
    wait, so that a copy mails no customer. This says: it is no test, it is the real one now.
    Consumers that run notice. Not needed after a failover to a standby.
    """
    with told_in_one_line():
        names = Names(schema=schema_name, prefix=prefix)
        database = parse_database_url(url)
    with told_in_one_line(database):
        home = schema.transact(database, lambda c: find_home(c, names))
    click.echo(
        f"{called(names)} in database {home.database!r}, {shown(database)}\n"
        f"  was at home in: {home.stored}\n"
        f"  is now in:      {home.present}",
        err=True,
    )
    if not home.is_copy:
        click.echo(f"{called(names)}: this is where it is at home; nothing was done")
        return
    if not yes:
        _confirm(home.database, confirm)
    with told_in_one_line(database):
        _, epoch = schema.transact(database, lambda c: adopt_copy(c, names, by=by or _user()))
    click.echo(f"{called(names)} in {shown(database)}: adopted, epoch {epoch}")


def _confirm(database: str, typed: str | None) -> None:
    if typed is None:
        click.echo(
            "External listeners and relays will act on the world from this database.", err=True
        )
        typed = click.prompt("Type the name of the database to go on", err=True)
    if typed != database:
        raise click.ClickException(f"{typed!r} is not the name of the database: nothing was done")


def _user() -> str:
    try:
        return getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return "unknown"
