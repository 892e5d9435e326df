"""``grants``: the rights of each kind of role."""

from __future__ import annotations

import click

from sa_outbox.database.rights import KINDS
from sa_outbox.schema.url import names_options
from sa_outbox.settings import Names

from .answers import NearChoice, cli_errors


@click.command()
@click.argument("kinds", nargs=-1, type=NearChoice(list(KINDS)), metavar="[KIND]...")
@click.option("--role", help="Name of the role.  [default: outbox_ and the kind]")
@click.option("--audit", is_flag=True, help="Include what an outbox with an audit needs.")
@names_options
def grants(
    *, kinds: tuple[str, ...], role: str | None, audit: bool, schema_name: str | None, prefix: str
) -> None:
    """Print the minimum rights of each kind of role, as SQL. Connects to nothing.

    \b
    producer       adds events
    full-producer  also idempotency keys, cancel, status and the inbox
    consumer       delivers events
    maintenance    owns the tables: migrates, creates and drops partitions, prunes
    operator       the other commands, and the dashboard with its buttons; may add events
    dashboard      the dashboard without buttons, status and top
    monitor        the view of the backlog, for KEDA or Grafana

    \b
    Examples:
        sa-outbox grants producer --role shop --schema events | psql
        sa-outbox grants consumer --role shop_consumer
        sa-outbox grants
    """
    from sa_outbox.schema.grants import grants  # noqa: PLC0415 - --help needs no SQLAlchemy

    with cli_errors():
        names = Names(schema=schema_name, prefix=prefix)
        if role is not None and len(kinds) != 1:
            raise click.UsageError("--role goes with one kind: say which")
    for kind in kinds or KINDS:
        default = f"{names.prefix}_{kind.replace('-', '_')}"
        click.echo("\n".join(grants(names, kind, role or default, audit=audit)) + "\n")
