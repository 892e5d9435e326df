"""The fields of ``Delivering`` as options, of ``endpoints add`` and ``endpoints change``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sa_outbox.policy.order import ORDERS

from .answers import NearChoice

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., None]")


def _from_json(_context: click.Context, _option: click.Parameter, given: str | None) -> Any:
    try:
        return None if given is None else json.loads(given)
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}") from error


def delivering_options(*, changing: bool) -> Callable[[F], F]:
    """*changing*: what is not given stays, and an endpoint keeps its order."""

    def default(value: object) -> dict[str, Any]:
        return {"default": None} if changing else {"default": value, "show_default": True}

    where = click.option(
        "--where",
        metavar="JSON",
        callback=_from_json,
        help="Only events whose payload has these fields with these values: an object.",
    )
    no_where = click.option("--no-where", is_flag=True, help="Events with any payload.")
    tenant = click.option("--tenant", help="Only events of this tenant.")
    no_tenant = click.option(
        "--no-tenant", is_flag=True, help="Events of every tenant, and of none."
    )
    order = click.option(
        "--order",
        type=NearChoice(ORDERS),
        help="Which events wait for each other: those of a key, all, or none.",
        **default("key"),
    )
    instead = ", instead of the present ones" if changing else ""
    options = (
        click.option(
            "--on", multiple=True, required=not changing, help=f"Event types{instead}. Repeatable."
        ),
        *((where, no_where, tenant, no_tenant) if changing else (where, tenant, order)),
        click.option(
            "--concurrency",
            type=click.IntRange(1, 1000),
            help="How many requests may be in flight at the same time.",
            **default(4),
        ),
        click.option(
            "--timeout",
            type=click.FloatRange(0.1, 300),
            help="Seconds for a request, from resolving the name to the answer.",
            **default(15.0),
        ),
        click.option(
            "--probe-interval",
            type=click.FloatRange(1, 86400),
            help="Seconds between two attempts while it is down.",
            **default(30.0),
        ),
        click.option(
            "--retry-410/--no-retry-410",
            help="Retry after an answer of 410, or disable NAME.",
            **default(value=False),
        ),
    )

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
