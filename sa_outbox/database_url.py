"""The options of every command: ``--database-url``, and the names of the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import click
from click.core import ParameterSource

from .schema.connect import parse_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import URL

F = TypeVar("F", bound="Callable[..., None]")

VARIABLES = ["SA_OUTBOX_DATABASE_URL", "DATABASE_URL"]

database_url_option = click.option(
    "--database-url",
    "url",
    metavar="URL",
    envvar=VARIABLES,
    show_envvar=True,
    help="postgresql://user@host:5432/name. Better in the environment: everybody on the machine "
    "can read a command line.",
)


def names_options(command: F) -> F:
    """``--schema`` and ``--prefix``."""
    for option in (
        click.option(
            "--prefix",
            default="outbox",
            show_default=True,
            envvar="SA_OUTBOX_PREFIX",
            show_envvar=True,
            help="Name of the log, and beginning of the other tables' names.",
        ),
        click.option(
            "--schema",
            "schema_name",
            envvar="SA_OUTBOX_SCHEMA",
            show_envvar=True,
            help="Schema of the tables. Without it: where the search_path leads.",
        ),
    ):
        command = option(command)
    return command


def parse_database_url(url: str | None) -> URL:
    """What the option holds, or an answer that says how to give it."""
    if not url:
        raise click.UsageError("which database? Set SA_OUTBOX_DATABASE_URL, or say --database-url")
    return parse_given_url(url, "url", "SA_OUTBOX_DATABASE_URL")


def parse_given_url(url: str, parameter: str, variable: str) -> URL:
    """Understand an address; warn if its password stands where everybody can read it."""
    parsed = parse_url(url)
    source = click.get_current_context().get_parameter_source(parameter)
    if parsed.password is not None and source is ParameterSource.COMMANDLINE:
        click.echo(
            "warning: a password on the command line can be read by everybody on this machine; "
            f"{variable} or PGPASSWORD can not",
            err=True,
        )
    return parsed
