"""What the operators' commands share: the connection, who and why, confirmation."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click

from sa_outbox.database.names import Names
from sa_outbox.schema.url import database_url_option, names_options, parse_database_url

from .answers import called, cli_errors
from .display import colours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sqlalchemy import URL, Connection

    from sa_outbox.database.tables import Tables
    from sa_outbox.operations.operator import Operator

T = TypeVar("T")
F = TypeVar("F", bound="Callable[..., None]")

DEADLOCK = "40P01"
ATTEMPTS = 5
_AGO = re.compile(r"(\d+)\s*([smhdw])\s*")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Place:
    """Which outbox of which database."""

    def __init__(self, url: str | None, names: Names) -> None:
        self.names = names
        self.database: URL = parse_database_url(url)

    @cached_property
    def tables(self) -> Tables:
        from sa_outbox.database.tables import tables  # noqa: PLC0415 - status does without

        return tables(self.names)

    def ask(self, work: Callable[[Connection, Tables], T]) -> T:
        """Run *work* in a transaction. A deadlock with a consumer is nobody's fault: retry."""
        from sqlalchemy.exc import DBAPIError  # noqa: PLC0415 - not for --help

        from sa_outbox.schema.connect import transact  # noqa: PLC0415 - not for --help

        with cli_errors(self.database):
            for attempt in range(ATTEMPTS):
                try:
                    return transact(self.database, lambda each: work(each, self.tables))
                except DBAPIError as error:
                    code = getattr(error.orig, "sqlstate", None)
                    if code != DEADLOCK or attempt + 1 == ATTEMPTS:
                        raise
        raise AssertionError

    @property
    def shown(self) -> str:
        from sa_outbox.schema.connect import shown  # noqa: PLC0415 - not for --help

        return f"{called(self.names)} in {shown(self.database)}"


def place_options(command: F) -> F:
    """``--database-url``, ``--schema`` and ``--prefix``."""
    return database_url_option(names_options(command))


def app_option(text: str) -> Callable[[F], F]:
    """``--app``: where the program's outbox is."""
    return click.option(
        "--app",
        metavar="MODULE:ATTRIBUTE",
        envvar="SA_OUTBOX_APP",
        show_envvar=True,
        help=f"Where your Outbox is. {text}",
    )


def place_of(options: dict[str, Any]) -> Place:
    """Take them out of a command's options."""
    click.get_current_context().color = colours()
    with cli_errors():
        names = Names(schema=options.pop("schema_name"), prefix=options.pop("prefix"))
        return Place(options.pop("url"), names)


def operator_options(command: F) -> F:
    """``--by`` and ``--why``, for the audit."""
    by = click.option(
        "--by",
        envvar="SA_OUTBOX_OPERATOR",
        show_envvar=True,
        help="Who does this, for the audit.  [default: the user of this machine]",
    )
    return by(click.option("--why", help="Why, for the audit.")(command))


def operator_of(options: dict[str, Any]) -> Operator:
    from sa_outbox.operations.operator import Operator, current_operator  # noqa: PLC0415

    by, why = options.pop("by"), options.pop("why")
    with cli_errors():
        return current_operator(why) if by is None else Operator(who=by, why=why)


def yes_option(command: F) -> F:
    """``--yes``."""
    return click.option("--yes", is_flag=True, help="Do not ask for confirmation.")(command)


def limit_option(command: F) -> F:
    """``--limit`` of a list."""
    return click.option(
        "--limit",
        type=click.IntRange(1, 1000),
        default=50,
        show_default=True,
        help="List at most this many.",
    )(command)


def confirm(place: Place, what: str, word: str, *, yes: bool) -> None:
    """Print in which database *what* is about to be done, and make the operator type *word*."""
    click.echo(f"{identity(place)}:\n{what}", err=True)
    if yes:
        return
    typed = click.prompt(f"Type {word} to continue", err=True)
    if typed != word:
        raise click.ClickException(f"{typed!r} is not {word!r}: nothing was done")


def identity(place: Place) -> str:
    def ask(connection: Connection, _tables: Tables) -> str:
        from sa_outbox.sql.server.catalog import this_session  # noqa: PLC0415 - reading commands need it not

        session = connection.execute(this_session()).one()
        return f"database {session.database!r}, as role {session.role!r}"

    return f"{place.shown}, {place.ask(ask)}"


def hint_types(place: Place, types: Iterable[str]) -> None:
    """Nothing was found: print the type that may have been meant, if recent events have none of
    *types* but a similar one. No error: an event of a type may be older than those, or still to
    come."""
    from sa_outbox.operations.known_names import near_event_types  # noqa: PLC0415 - rarely

    if near := place.ask(lambda c, tables: near_event_types(c, tables, types)):
        click.echo(f"no recent event has such a type{near}", err=True)


def moment_option(name: str, what: str) -> Callable[[F], F]:
    """An option for a time: ISO 8601 with its zone, or how long ago."""
    return click.option(name, type=parse_moment, metavar="TIME", help=f"{what}: a time, or 2h ago.")


def parse_moment(text: str) -> datetime:
    """``2026-03-01T08:00Z``, or ``90s``, ``15m``, ``2h``, ``3d``, ``1w`` ago."""
    ago = _AGO.fullmatch(text.strip().removesuffix("ago"))
    try:
        if ago:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        found = None
    if found is None or found.tzinfo is None:
        raise click.BadParameter(
            f"{text!r} is neither a time with its zone, like 2026-03-01T08:00Z, nor an age, like "
            "15m, 2h or 3d"
        )
    return found


def parse_event(text: str) -> dict[str, Any]:
    """Parse an event's id in the log, or its event_id."""
    if text.isdecimal():
        return {"position": int(text)}
    try:
        return {"event_id": UUID(text)}
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither an id of the log nor an event_id") from None
