"""``queues``: what their processes have claimed."""

from __future__ import annotations

from typing import Any

import click

from .display import as_json, holder, span, table
from .operator import place_of, place_options


@click.group()
def queues() -> None:
    """Show what processes have claimed from queues.

    A queue is a listener whose events several processes share: order="none".
    """


@queues.command("list")
@click.argument("name", required=False)
@click.option("--json", "as_json_", is_flag=True, help="One JSON list, for programs.")
@place_options
def list_(*, name: str | None, as_json_: bool, **options: Any) -> None:
    """List the ranges that are claimed, of all queues or of NAME.

    HELD BY is the host and the process; LEASE is when its claim ends, unless it is renewed. A range
    that nobody holds was left by a process, and the next one claims it.
    """
    from sa_outbox.operations.claims import list_claimed  # noqa: PLC0415 - not for its help
    from sa_outbox.operations.known_names import check_listener  # noqa: PLC0415 - not for its help

    place = place_of(options)
    found = place.ask(lambda c, tables: list_claimed(c, tables, name))
    if not found and name is not None:
        place.ask(lambda c, tables: check_listener(c, tables, name))
    if as_json_:
        click.echo(as_json(found))
        return
    headers = ("QUEUE", "RANGE", "FROM ID", "LEFT", "HELD BY", "LEASE", "CRASHES")
    rows = [
        [
            each.queue,
            each.number,
            each.first_id,
            each.events,
            holder(each.owner),
            span(each.lease_seconds),
            each.crashes,
        ]
        for each in found
    ]
    click.echo(table(headers, rows) if rows else "nothing is claimed from a queue")
