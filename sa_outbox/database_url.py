"""The options of every command: ``--database-url``, and the names of the tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import URL

F = TypeVar("F", bound="Callable[..., None]")

VARIABLES = ["SA_OUTBOX_DATABASE_URL", "DATABASE_URL"]

_PLAIN = re.compile(
    r"postgres(ql)?://((?P<user>[\w.~-]+)(:(?P<password>[\w.~-]+))?@)?"
    r"(?P<place>(?P<host>[\w.-]+)(:(?P<port>[1-9]\d{0,4}))?/(?P<database>[\w.~-]+))"
    r"(?P<options>\?[\w.~=&/-]*)?",
    re.ASCII,
)

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


class PlainUrl(NamedTuple):
    """An address that everybody understands alike: of PostgreSQL, without the name of a driver,
    and without a character that some would decode and others not."""

    url: str
    host: str
    port: int
    user: str
    """Empty: whoever runs this."""
    password: str | None
    database: str
    has_options: bool
    shown: str
    """Without anything secret, as ``schema.connect.shown`` has it."""


def plain_url(url: str) -> PlainUrl | None:
    """None: SQLAlchemy has to say what *url* is."""
    found = _PLAIN.fullmatch(url)
    if found is None:
        return None
    user = found["user"] or ""
    return PlainUrl(
        url,
        host=found["host"],
        port=int(found["port"] or 5432),
        user=user,
        password=found["password"],
        database=found["database"],
        has_options=bool(found["options"]),
        shown=f"postgresql://{user}{'@' if user else ''}{found['place']}",
    )


def parse_database_url(url: str | None) -> URL:
    """What the option holds, or an answer that says how to give it."""
    return parse_given_url(_given(url), "url", "SA_OUTBOX_DATABASE_URL")


def parse_plain_url(url: str | None) -> PlainUrl | None:
    """The same for those who can do without SQLAlchemy; None: this address can not."""
    found = plain_url(_given(url))
    if found is not None:
        _warn_if_seen(found.password, "url", "SA_OUTBOX_DATABASE_URL")
    return found


def parse_given_url(url: str, parameter: str, variable: str) -> URL:
    """Understand an address; warn if its password stands where everybody can read it."""
    from .schema.connect import parse_url  # noqa: PLC0415 - loads SQLAlchemy: not for help, status

    parsed = parse_url(url)
    _warn_if_seen(parsed.password, parameter, variable)
    return parsed


def _given(url: str | None) -> str:
    if not url:
        raise click.UsageError("which database? Set SA_OUTBOX_DATABASE_URL, or say --database-url")
    return url


def _warn_if_seen(password: object, parameter: str, variable: str) -> None:
    source = click.get_current_context().get_parameter_source(parameter)
    if password is not None and source is ParameterSource.COMMANDLINE:
        click.echo(
            "warning: a password on the command line can be read by everybody on this machine; "
            f"{variable} or PGPASSWORD can not",
            err=True,
        )
