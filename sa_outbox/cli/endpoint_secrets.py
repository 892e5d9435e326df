"""The secrets of ``endpoints``: rotate, reseal, new-key."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

import click

from .answers import cli_errors, counted
from .operator import operator_of, operator_options, place_of, place_options

if TYPE_CHECKING:
    from sa_outbox.operations.sealing import Binding


@click.command()
@click.argument("name")
@click.option("--secret-env", help="The consumer's environment variable that holds the new secret.")
@click.option("--finish", is_flag=True, help="Sign with the newest secret alone.")
@place_options
@operator_options
def rotate(*, name: str, secret_env: str | None, finish: bool, **options: Any) -> None:
    """Give NAME a new secret.

    Messages are signed with both the new and the previous one. Once the receiver knows the new
    one, run `rotate NAME --finish`.
    """
    from sa_outbox.operations.endpoints import rotate_endpoint  # noqa: PLC0415 - not for the help
    from sa_outbox.webhooks import new_secret  # noqa: PLC0415 - not for the help

    if finish and secret_env is not None:
        raise click.UsageError("--finish takes no new secret")
    place, operator = place_of(options), operator_of(options)
    made = None if finish or secret_env is not None else new_secret()
    active = place.ask(
        lambda c, tables: rotate_endpoint(
            c, tables, name, operator, secret=made, variable=secret_env
        )
    )
    click.echo(f"endpoint {name}: messages are signed with {counted(active, 'secret')}")
    warn_of(secret_env)
    show_secret(made)


@click.command()
@place_options
@operator_options
def reseal(**options: Any) -> None:
    """Seal every secret with the first key of SA_OUTBOX_SECRET_KEY.

    To replace that key: give consumers the new one next to the old one, put it first here, reseal,
    and remove the old one.
    """
    from sa_outbox.operations.endpoints import reseal_endpoints  # noqa: PLC0415 - not for the help

    place, operator = place_of(options), operator_of(options)
    done = place.ask(lambda c, tables: reseal_endpoints(c, tables, operator))
    for name in done.names:
        click.echo(f"endpoint {name}: sealed with the first key")
    for name, why in done.failed:
        click.echo(f"endpoint {name}: left as it is: {why}", err=True)
    if done.failed:
        raise click.ClickException(f"{len(done.failed)} of the endpoints can't be resealed")
    if not done.names:
        click.echo("nothing to do: everything is sealed with the first key")


@click.command("new-key")
def new_key() -> None:
    """Print a key for SA_OUTBOX_SECRET_KEY. Keep it where your other secrets are."""
    from sa_outbox.operations import sealing  # noqa: PLC0415 - not for the help

    with cli_errors():
        click.echo(sealing.new_key())


def stored_secret(variable: str | None, made: str | None, binding: Binding) -> str:
    from sa_outbox.operations import sealing  # noqa: PLC0415 - not for the help

    return sealing.seal(made, binding) if made else sealing.named(variable or "")


def token_of(file: IO[str]) -> str:
    """A token, without the newline at the end of its file."""
    from sa_outbox.relay.http.secret import check_bearer  # noqa: PLC0415 - needs its extra

    return check_bearer(file.read().strip())


def warn_of(variable: str | None) -> None:
    from sa_outbox.operations.sealing import READABLE, is_readable  # noqa: PLC0415 - not for the help

    if variable is not None and not is_readable(variable, READABLE):
        click.echo(
            f"consumers read {variable} only if your program allows it:"
            f" outbox.webhooks(secrets_from_env=[{variable!r}])",
            err=True,
        )


def show_secret(secret: str | None) -> None:
    if secret is not None:
        click.echo("its secret, shown this once; the receiver verifies with it:")
        click.echo(secret)
