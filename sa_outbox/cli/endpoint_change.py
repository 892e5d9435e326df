"""``endpoints change``: which events an endpoint gets, and how."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from .operator import operator_of, operator_options, place_of, place_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables

_FIELDS: Final = (
    *("on", "where", "tenant", "concurrency", "timeout", "probe_interval", "retry_410"),
)


F = TypeVar("F", bound="Callable[..., None]")


def from_json(_context: click.Context, _option: click.Parameter, given: str | None) -> Any:
    try:
        return None if given is None else json.loads(given)
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}") from error


def request_options(
    *,
    concurrency: int | None = None,
    timeout: float | None = None,
    probe_interval: float | None = None,
) -> Callable[[F], F]:
    """How requests are sent, with the defaults that are given."""

    def decorate(command: F) -> F:
        for option in (
            click.option(
                "--probe-interval",
                type=click.FloatRange(1, 86400),
                default=probe_interval,
                show_default=True,
                help="Seconds between two attempts while it is down.",
            ),
            click.option(
                "--timeout",
                type=click.FloatRange(0.1, 300),
                default=timeout,
                show_default=True,
                help="Seconds for a request, from resolving the name to the answer.",
            ),
            click.option(
                "--concurrency",
                type=click.IntRange(1, 1000),
                default=concurrency,
                show_default=True,
                help="How many requests may be in flight at the same time.",
            ),
        ):
            command = option(command)
        return command

    return decorate


@click.command()
@click.argument("name")
@click.option("--on", multiple=True, help="Event types, instead of the present ones. Repeatable.")
@click.option(
    "--where",
    metavar="JSON",
    callback=from_json,
    help="Only events whose payload has these fields with these values: an object.",
)
@click.option("--no-where", is_flag=True, help="Events with any payload.")
@click.option("--tenant", help="Only events of this tenant.")
@click.option("--no-tenant", is_flag=True, help="Events of every tenant, and of none.")
@request_options()
@click.option(
    "--retry-410/--no-retry-410",
    default=None,
    help="Retry after an answer of 410, or disable NAME.",
)
@place_options
@operator_options
def change(*, name: str, no_where: bool, no_tenant: bool, **options: Any) -> None:
    """Change which events NAME gets, and how. What is not named stays.

    Its cursor, its secrets and what waits for a retry stay, too. Events that have passed it are not
    looked at again. `move` changes the URL, `rotate` the secret.
    """
    from dataclasses import replace  # noqa: PLC0415 - not for --help

    from sa_outbox.operations.endpoints import change_endpoint, find_endpoint  # noqa: PLC0415 - not for the help
    from sa_outbox.relay.endpoints import check_delivering  # noqa: PLC0415 - not for the help

    given = _given(options, no_where=no_where, no_tenant=no_tenant)
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


def _given(options: dict[str, Any], *, no_where: bool, no_tenant: bool) -> dict[str, Any]:
    """What is to be changed, taken out of *options*."""
    found = {each: options.pop(each) for each in _FIELDS}
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
