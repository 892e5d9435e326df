"""``consume``, ``repartition`` and ``demo``."""

from __future__ import annotations

import click

from sa_outbox.schema.url import database_url_option, names_options, parse_database_url

from .answers import cli_errors, counted
from .operator import app_option


@click.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def consume(*, words: tuple[str, ...]) -> None:
    """Deliver events to listeners: python -m sa_outbox.consume."""
    from sa_outbox.consume.command import command  # noqa: PLC0415 - anyio and structlog concern no other command

    command.main(list(words), prog_name="sa-outbox consume")


@click.command()
@click.argument("listener")
@click.argument("partitions", type=int)
@app_option(
    "Needed for a listener with one partition: only the program knows whether it can be divided."
)
@database_url_option
@names_options
def repartition(
    *,
    listener: str,
    partitions: int,
    app: str | None,
    url: str | None,
    schema_name: str | None,
    prefix: str,
) -> None:
    """Divide LISTENER into PARTITIONS, while its consumers run.

    Nothing is lost, and no settled event is delivered again. Safe to run again.
    """
    from anyio import run  # noqa: PLC0415 - anyio concerns few commands

    from sa_outbox.consume.loader import load_outbox  # noqa: PLC0415
    from sa_outbox.consumer import repartition as divide  # noqa: PLC0415
    from sa_outbox.outbox import Outbox  # noqa: PLC0415

    with cli_errors():
        outbox = load_outbox(app) if app else Outbox(schema=schema_name, prefix=prefix)
        database = parse_database_url(url)
    with cli_errors(database):
        before = run(divide, outbox, database, listener, partitions)
    click.echo(f"listener {listener}: {before} -> {counted(partitions, 'partition')}")


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True, max=3600),
    help="How long the shop is open.  [default: until Ctrl-C; without a terminal, 8]",
)
def demo(*, seconds: float | None) -> None:
    """See it work: a small shop on an embedded PostgreSQL.

    Three listeners handle its events. Exit code 0 if everything adds up at the end.
    """
    click.echo("Starting an embedded PostgreSQL ...")
    from sa_outbox.demo import run  # noqa: PLC0415 - after the first line: it takes its time

    with cli_errors():
        adds_up = run(seconds, click.echo)
    if not adds_up:
        raise SystemExit(1)
