"""``adopt``: declare that a restored or cloned database may act on the outside world."""

from __future__ import annotations

import click

from sa_outbox import schema
from sa_outbox.operations.operator import current_operator
from sa_outbox.schema.connect import shown
from sa_outbox.schema.identity import adopt as adopt_copy
from sa_outbox.schema.identity import find_home
from sa_outbox.schema.url import database_url_option, names_options, parse_database_url
from sa_outbox.settings import Names

from .answers import called, cli_errors


@click.command()
@database_url_option
@names_options
@click.option(
    "--confirm",
    metavar="DATABASE",
    help="The name of the database, instead of typing it when asked.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--by",
    metavar="NAME",
    help="Who does this, for the audit.  [default: the user of this machine]",
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

    After a dump was restored or a database cloned, listeners declared external=True and relays
    wait, so that a copy emails no customer. This command declares that it is the real one now, not
    a test. Running consumers notice. Not needed after a failover to a standby.
    """
    with cli_errors():
        names = Names(schema=schema_name, prefix=prefix)
        database = parse_database_url(url)
    with cli_errors(database):
        home = schema.transact(database, lambda c: find_home(c, names))
    click.echo(
        f"{called(names)} in database {home.database!r}, {shown(database)}\n"
        f"  was in:         {home.stored}\n"
        f"  is now in:      {home.present}",
        err=True,
    )
    if not home.is_copy:
        click.echo(f"{called(names)}: this is already its home; nothing was done")
        return
    if not yes:
        _confirm(home.database, confirm)
    who = by or current_operator().who
    with cli_errors(database):
        _, epoch = schema.transact(database, lambda c: adopt_copy(c, names, by=who))
    click.echo(f"{called(names)} in {shown(database)}: adopted, epoch {epoch}")


def _confirm(database: str, typed: str | None) -> None:
    if typed is None:
        click.echo(
            "External listeners and relays will act on the outside world from this database.",
            err=True,
        )
        typed = click.prompt("Type the name of the database to continue", err=True)
    if typed != database:
        raise click.ClickException(f"{typed!r} is not the name of the database: nothing was done")
