"""The options of every command: ``--database-url``, and the names of the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import URL

F = TypeVar("F", bound="Callable[..., None]")

VARIABLES = ["SA_OUTBOX_DATABASE_URL", "DATABASE_URL"]


def database_url_option(command: F) -> F:
    """``--database-url``."""
    return click.option(
        "--database-url",
        "url",
        metavar="URL",
        envvar=VARIABLES,
        show_envvar=True,
        help="postgresql://user@host:5432/name. Better in the environment: everybody on the "
        "machine can read a command line.",
    )(command)


def names_options(command: F) -> F:
    """``--schema`` and ``--prefix``."""
    for option in (
        click.option(
            "--prefix",
            default="outbox",
            show_default=True,
            envvar="SA_OUTBOX_PREFIX",
            show_envvar=True,
            help="Name of the log, and prefix of the other tables' names.",
        ),
        click.option(
            "--schema",
            "schema_name",
            envvar="SA_OUTBOX_SCHEMA",
            show_envvar=True,
            help="Schema of the tables. Default: resolved by the search_path.",
        ),
    ):
        command = option(command)
    return command


def parse_database_url(url: str | None) -> URL:
    """Parse the option's value; if it is missing, explain how to pass it."""
    return parse_given_url(_given(url), "url", "SA_OUTBOX_DATABASE_URL")


def parse_given_url(url: str, parameter: str, variable: str) -> URL:
    """Parse a URL; warn if its password is where everybody can read it."""
    from .connect import parse_url  # noqa: PLC0415 - loads SQLAlchemy: not for --help

    parsed = parse_url(url)
    _warn_if_seen(parsed.password, parameter, variable)
    return parsed


def _given(url: str | None) -> str:
    if not url:
        raise click.UsageError("which database? Set DATABASE_URL, or pass --database-url")
    return url


def _warn_if_seen(password: object, parameter: str, variable: str) -> None:
    source = click.get_current_context().get_parameter_source(parameter)
    if password is not None and source is ParameterSource.COMMANDLINE:
        click.echo(
            "warning: everybody on this machine can read a password on the command line; use "
            f"{variable} or PGPASSWORD instead",
            err=True,
        )
