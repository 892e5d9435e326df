"""``catalog``: the events of a program as a document, and what a change of it breaks."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sa_outbox.errors import ConfigError

from .answers import NearChoice, cli_errors, counted, read_catalogue
from .operator import app_option

if TYPE_CHECKING:
    from sa_outbox.catalog import Change
    from sa_outbox.outbox import Outbox

FILES = {"asyncapi": "asyncapi.json", "json-schema": "events.schema.json"}
WHOM = {
    "stored": "stored events, read by",
    "deploy": "new events, read by the last release:",
    "receivers": "receivers of",
}
"""Who is affected by what breaks a rule; followed by their names."""


@click.group(invoke_without_command=True)
@app_option("Required. The modules that it imports are the program.")
@click.option(
    "--format",
    "form",
    type=NearChoice(sorted(FILES)),
    default="asyncapi",
    show_default=True,
    help="What kind of document to write.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="File to write; - for standard output.  [default: asyncapi.json or events.schema.json]",
)
@click.option("--title", help="Title of the document.  [default: the name of the outbox's table]")
@click.option(
    "--api-version", default="1.0.0", show_default=True, help="Version that the document states."
)
@click.pass_context
def catalog(
    context: click.Context,
    *,
    app: str | None,
    form: str,
    output: str | None,
    title: str | None,
    api_version: str,
) -> None:
    """Write the events of a program to a file, as AsyncAPI.

    Or as JSON Schema. Which event types there are, what is in them, who reads them, and where they
    are forwarded to. Needs no database. The same program always has the same file: commit it.

    \b
    Examples:
        sa-outbox catalog --app shop.app:outbox
        sa-outbox catalog --app shop.app:outbox --format json-schema -o -
        sa-outbox catalog check asyncapi.json --app shop.app:outbox
    """
    if context.invoked_subcommand is not None:
        context.obj = app
        return
    with cli_errors():
        outbox = _load(app)
        from sa_outbox.catalog import asyncapi, json_schema  # noqa: PLC0415 - not for --help
        from sa_outbox.catalog.document import as_text  # noqa: PLC0415

        is_asyncapi = form == "asyncapi"
        document = (
            asyncapi(outbox, title=title, version=api_version)
            if is_asyncapi
            else json_schema(outbox)
        )
        _write(as_text(document), FILES[form] if output is None else output)


@catalog.command()
@click.argument("file", type=click.File(encoding="utf-8"))
@app_option("Required.")
@click.option(
    "--allow",
    multiple=True,
    metavar="NAME",
    help="An event type, listener or relay whose breaking changes are wanted. Repeatable.",
)
@click.option(
    "--stored-only",
    is_flag=True,
    help="No consumer of the old release runs beside producers of the new one: check only what is "
    "stored, and receivers.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.pass_context
def check(
    context: click.Context,
    *,
    file: Any,
    app: str | None,
    allow: tuple[str, ...],
    stored_only: bool,
    as_json: bool,
) -> None:
    """Compare the program with FILE, a catalogue of its last release.

    A FILE named - is standard input.

    Exit code 1 if something breaks: stored events that the program can't read, events that
    consumers of the last release can't read, messages that receivers of a relay miss. Says who
    reads them, and what to do. 0 if nothing breaks; other changes are listed. 2 for wrong usage, or
    a FILE that is no catalogue.

    \b
    Examples:
        sa-outbox catalog check asyncapi.json
        git show origin/main:asyncapi.json | sa-outbox catalog check -
    """
    with cli_errors():
        committed = read_catalogue(file)
        outbox = _load(app or context.obj)
        from sa_outbox.catalog import compare  # noqa: PLC0415 - not for --help

        found = compare(committed, outbox)
    unknown = sorted(set(allow) - {each.subject for each in found})
    if unknown:
        click.echo(f"--allow {unknown[0]}: nothing of that name has changed", err=True)
    breaking = [
        each
        for each in found
        if each.protects is not None
        and each.subject not in allow
        and not (stored_only and each.protects == "deploy")
    ]
    if as_json:
        documents = [asdict(each) | {"fails": each in breaking} for each in found]
        click.echo(json.dumps({"changes": documents}, indent=2, ensure_ascii=False))
    else:
        _print(file.name, found, breaking)
    if breaking:
        raise click.exceptions.Exit(1)


def _print(name: str, found: list[Change], breaking: list[Change]) -> None:
    for subject, of_subject in groupby(breaking, key=lambda each: each.subject):
        changes = list(of_subject)
        click.echo(f"breaking: {subject}")
        for whom, affected in groupby(changes, key=_whom):
            click.echo(f"    {whom}")
            for each in affected:
                click.echo(f"        {each.what}")
                if each.instead is not None:
                    click.echo(f"            or {each.instead}")
        for fix in dict.fromkeys(each.fix for each in changes if each.fix):
            click.echo(f"    fix: {fix}")
        click.echo()
    others = [each for each in found if each not in breaking]
    for each in others:
        allowed = "" if each.protects is None else " (breaking, and allowed)"
        click.echo(f"change: {each.subject}: {each.what}{allowed}")
    total = counted(len(breaking), "breaking change") if breaking else "nothing breaks"
    click.echo(f"{name}: {total}, {counted(len(others), 'other change')}")


def _whom(change: Change) -> str:
    if not change.breaks:
        return "no listener of the program reads it; others may"
    if change.breaks == (change.subject,):
        return f"{WHOM[change.protects or 'stored']} it"
    return f"{WHOM[change.protects or 'stored']} {', '.join(change.breaks)}"


def _load(app: str | None) -> Outbox:
    if app is None:
        raise ConfigError("which program? Give --app, as in shop.app:outbox, or set SA_OUTBOX_APP")
    from sa_outbox.consume.loader import load_outbox  # noqa: PLC0415 - the program's modules, and the ORM

    return load_outbox(app)


def _write(text: str, output: str) -> None:
    if output == "-":
        click.echo(text, nl=False)
        return
    path = Path(output)
    same = path.is_file() and path.read_bytes() == text.encode()
    if not same:
        path.write_bytes(text.encode())
    click.echo(f"{output}: {'unchanged' if same else 'written'}", err=True)
