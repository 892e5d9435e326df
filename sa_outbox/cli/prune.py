"""``prune``: run one round of maintenance now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sa_outbox.consume.options import retention_options
from sa_outbox.schema.url import database_url_option, names_options, parse_database_url

from .answers import called, cli_errors, counted

if TYPE_CHECKING:
    from sa_outbox.consumer.upkeep.round import Outlook
    from sa_outbox.observe import Observation, RetentionHeld


@click.command()
@database_url_option
@names_options
@retention_options
@click.option(
    "--dry-run", is_flag=True, help="Print what would be removed and what stays; change nothing."
)
def prune(
    *,
    url: str | None,
    schema_name: str | None,
    prefix: str,
    dry_run: bool,
    **kept: Any,
) -> None:
    """Create partitions ahead and remove what has expired.

    It also reports what keeps the rest. Every consumer does this each minute; this command does it
    once, now. For a role that owns the tables, if the consumers' role does not. Safe to run again,
    and next to consumers.
    """
    from anyio import run  # noqa: PLC0415 - concerns no other command

    from sa_outbox.consumer.upkeep.command import preview  # noqa: PLC0415
    from sa_outbox.consumer.upkeep.command import prune as remove  # noqa: PLC0415
    from sa_outbox.outbox import Outbox  # noqa: PLC0415
    from sa_outbox.settings import ConsumerSettings  # noqa: PLC0415

    with cli_errors():
        outbox, database = Outbox(schema=schema_name, prefix=prefix), parse_database_url(url)
        settings = ConsumerSettings(**kept)
    heard: list[Observation] = []

    def emit(observation: Observation) -> None:
        heard.append(observation)
        click.echo(_line(observation))

    with cli_errors(database):
        if dry_run:
            outlook = run(preview, outbox, database, settings)
            for line in _foreseen(outlook):
                click.echo(line)
            held = outlook.held
        else:
            held = run(remove, outbox, database, settings, emit)
    if not heard and not dry_run:
        click.echo(f"{called(outbox.settings.names)}: nothing to do")
    for each in held:
        click.echo(_describe(each))


def _line(observation: Observation) -> str:
    from sa_outbox import observe  # noqa: PLC0415 - concerns no other command

    match observation:
        case observe.PartitionMade(partition, low, high):
            return f"made {partition} for the ids from {low:,} up to {high:,}"
        case observe.PartitionDropped(partition, low, high):
            return f"dropped {partition} with the ids from {low:,} up to {high:,}"
        case observe.CatchAllEmptied(partitions, moved):
            return f"moved {counted(moved, 'event')} of the catch-all to {', '.join(partitions)}"
        case observe.RowsPurged(table, rows):
            return f"deleted {counted(rows, 'row')} of {table}"
        case observe.EventsGone(listener, count, position):
            return (
                f"deleted {counted(count, 'delivery')} of {listener} from id {position:,} on:"
                " not in the log any more"
            )
        case observe.RetentionWaits(step):
            return f"not done because of open transactions that write events: {step}; run it again"
        case observe.RetentionRefused(step, error):
            return f"not done: {step}: {error}"
        case _:
            return str(observation)


def _foreseen(outlook: Outlook) -> list[str]:
    lines = [f"would make {one.name}" for one in outlook.ahead]
    if outlook.in_rest is not None:
        lines.append(f"would move the events of the catch-all, from id {outlook.in_rest:,} on")
    lines += [
        f"would drop {one.name} with the ids from {one.low:,} up to {one.high:,}"
        for one in outlook.droppable
    ]
    if outlook.deletable:
        lines.append(f"would delete {counted(outlook.deletable, 'expired event')}")
    lines += [
        f"would delete {counted(rows, 'row')} of {table}"
        for table, rows in outlook.expired.items()
        if rows
    ]
    if outlook.nobody:
        lines.append("no listener is registered: nobody has passed an event, so none is dropped")
    return lines or ["nothing to do"]


def _describe(held: RetentionHeld) -> str:
    return (
        f"listener {held.listener} keeps {counted(held.partitions, 'expired partition')} with"
        f" {counted(held.ids, 'id')}: {', '.join(held.why)}, from id {held.position:,} on"
        f"{', paused' if held.paused else ''}; its cursor was written at"
        f" {held.since:%Y-%m-%d %H:%M:%S %Z}.\n"
        f"    If it is gone forever: sa-outbox listeners retire {held.listener}"
    )
