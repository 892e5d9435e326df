"""``doctor``: what is wrong, what it means, what fixes it."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from sa_outbox import schema
from sa_outbox.doctor import CODES, Finding, examine
from sa_outbox.policy.checks import did_you_mean
from sa_outbox.schema.connect import dsn_of, shown, tls_of
from sa_outbox.schema.url import (
    database_url_option,
    names_options,
    parse_database_url,
    parse_given_url,
)
from sa_outbox.settings import Names

from .answers import called, cli_errors

if TYPE_CHECKING:
    from sqlalchemy import URL

    from sa_outbox.outbox import Outbox


@click.command()
@click.argument("app", metavar="[MODULE:ATTRIBUTE]", required=False, envvar="SA_OUTBOX_APP")
@database_url_option
@names_options
@click.option(
    "--listen-url",
    metavar="URL",
    envvar="SA_OUTBOX_LISTEN_URL",
    show_envvar=True,
    help="The URL on which consumers LISTEN, if it is a different one.",
)
@click.option("--no-listen", is_flag=True, help="Do not test whether LISTEN receives a NOTIFY.")
@click.option(
    "--ignore", "ignored", multiple=True, metavar="CODE", help="Leave out this finding. Repeatable."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def doctor(
    *,
    app: str | None,
    url: str | None,
    schema_name: str | None,
    prefix: str,
    listen_url: str | None,
    no_listen: bool,
    ignored: tuple[str, ...],
    as_json: bool,
) -> None:
    """Report every problem, what it means, and how to fix it.

    Changes nothing. Run it as the role that consumes. With MODULE:ATTRIBUTE, where your Outbox is,
    or SA_OUTBOX_APP in the environment, it also knows which listeners are declared. Exit code 1 if
    there is something to fix, 0 if there are no findings or only informational ones.

    \b
    Examples:
        sa-outbox doctor shop.app:outbox
        sa-outbox doctor --json --ignore idle-in-transaction
    """
    for code in ignored:
        if code not in CODES:
            near = did_you_mean(code, CODES) or f"; there are: {', '.join(CODES)}"
            raise click.UsageError(f"there is no finding {code!r}{near}")
    with cli_errors():
        outbox = None if app is None else _load(app)
        names = Names(schema=schema_name, prefix=prefix) if outbox is None else _names(outbox)
        database = parse_database_url(url)
        listening = (
            parse_given_url(listen_url, "listen_url", "SA_OUTBOX_LISTEN_URL")
            if listen_url
            else database
        )
    declared = None if outbox is None else [each.name for each in outbox.listeners]
    notifies = outbox is None or outbox.settings.notifies
    with cli_errors(database):
        work = partial(examine, names=names, declared=declared)
        found = [*_way(database), *schema.transact(database, work)]
        if notifies and not no_listen:
            found += _try_to_listen(listening, database, names.notify_channel)
    found = [each for each in found if each.code not in ignored]
    _print(found, names, database, as_json=as_json)
    if any(each.severity != "info" for each in found):
        raise click.exceptions.Exit(1)


def _way(database: URL) -> list[Finding]:
    tls = tls_of(database)
    if tls in ("local", "verified"):
        return []
    how = "is encrypted" if tls == "unverified" else "need not be encrypted"
    return [
        Finding(
            code="tls-unverified",
            what=f"The connection {how}, and the server's identity is not verified: a machine in "
            "between can read passwords and payloads, and change them.",
            fix="Write sslmode=verify-full&sslrootcert=/path/to/ca.pem into the database URL.",
            evidence={"tls": tls},
        )
    ]


def _print(found: list[Finding], names: Names, database: URL, *, as_json: bool) -> None:
    if as_json:
        findings = [each.as_json() for each in found]
        document = {"database": shown(database), "outbox": called(names), "findings": findings}
        click.echo(json.dumps(document, indent=2, default=str))
        return
    for each in found:
        click.echo(f"{each.severity}: {each.code}\n    {each.what}")
        seen = ", ".join(f"{name}={value}" for name, value in each.evidence.items())
        if seen:
            click.echo(f"    seen: {seen}")
        for line in each.fix.splitlines():
            click.echo(f"    fix: {line}")
        click.echo()
    count = sum(each.severity != "info" for each in found)
    result = f"{count} to fix" if count else "nothing to fix"
    click.echo(f"{called(names)} in {shown(database)}: {result}")


def _load(app: str) -> Outbox:
    from sa_outbox.consume.loader import load_outbox  # noqa: PLC0415 - the program's modules, and the ORM

    return load_outbox(app)


def _names(outbox: Outbox) -> Names:
    return outbox.settings.names


def _try_to_listen(listening: URL, database: URL, channel: str) -> list[Finding]:
    import asyncpg  # noqa: PLC0415 - this and the next are not needed for --help
    from anyio import run  # noqa: PLC0415

    from sa_outbox.doctor.listen_check import find  # noqa: PLC0415

    def way(address: URL) -> Any:
        return partial(asyncpg.connect, dsn_of(address), statement_cache_size=0, timeout=10)

    return run(find, way(listening), way(database), channel)
