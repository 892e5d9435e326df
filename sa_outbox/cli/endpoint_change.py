"""``endpoints change``: which events an endpoint gets, and how."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from .endpoint_options import delivering_options
from .operator import operator_of, operator_options, place_of, place_options

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables


@click.command()
@click.argument("name")
@delivering_options(changing=True)
@place_options
@operator_options
def change(*, name: str, no_where: bool, no_tenant: bool, **options: Any) -> None:
    """Change which events NAME gets, and how. What is not named stays.

    Its cursor, its secrets and what waits for a retry stay, too. Events that have passed it are not
    looked at again. `move` changes the URL, `rotate` the secret.
    """
    from dataclasses import fields, replace  # noqa: PLC0415 - not for --help

    from sa_outbox.operations.endpoint import Delivering  # noqa: PLC0415 - not for the help
    from sa_outbox.operations.endpoints import change_endpoint, find_endpoint  # noqa: PLC0415 - not for the help
    from sa_outbox.relay.endpoints import check_delivering  # noqa: PLC0415 - not for the help

    names = [each.name for each in fields(Delivering) if each.name in options]
    found = {each: options.pop(each) for each in names}
    given = _given(found, no_where=no_where, no_tenant=no_tenant)
    place, operator = place_of(options), operator_of(options)

    def work(connection: Connection, tables: Tables) -> dict[str, tuple[Any, Any]]:
        known = find_endpoint(connection, tables, name)
        check_delivering(replace(known, delivering=replace(known.delivering, **given)))
        return change_endpoint(connection, tables, name, operator, **given)

    changed = place.ask(work)
    for field, (before, after) in changed.items():
        click.echo(f"endpoint {name}: {field} was {_shown(before)}, is {_shown(after)}")
    if not changed:
        click.echo(f"endpoint {name}: nothing to change")


def _given(found: dict[str, Any], *, no_where: bool, no_tenant: bool) -> dict[str, Any]:
    """What is to be changed."""
    for field, removed in (("where", no_where), ("tenant", no_tenant)):
        if removed and found[field] is not None:
            raise click.UsageError(f"give --{field} or --no-{field}, not both")
    given = {field: value for field, value in found.items() if value not in (None, ())}
    given |= {"where": None} if no_where else {}
    given |= {"tenant": None} if no_tenant else {}
    if not given:
        raise click.UsageError("name what to change: --on, --where, --tenant, ...")
    return given


def _shown(value: Any) -> str:
    return "not set" if value is None else json.dumps(value)
