"""``endpoints``: where webhooks go. Add, list, move, disable, enable, remove, test; ``change`` and
what concerns secrets have modules of their own."""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from .answers import cli_errors
from .display import moment, table
from .endpoint_change import change
from .endpoint_options import delivering_options
from .endpoint_secrets import (
    new_key,
    reseal,
    rotate,
    show_secret,
    stored_secret,
    token_of,
    warn_of,
)
from .operator import confirm, operator_of, operator_options, place_of, place_options, yes_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from sa_outbox.relay.endpoints import EndpointOptions

UNTIL_SEEN = (
    "it gets what is committed once a running consumer has seen it: within about 5 s, or when one"
    " starts"
)

F = TypeVar("F", bound="Callable[..., None]")


def permit_options(command: F) -> F:
    """What your program permits in ``outbox.webhooks(...)``, which a command does not know."""
    allow = click.option(
        "--allow",
        multiple=True,
        metavar="NETWORK",
        help="A network in which your program allows endpoints.",
    )
    port = click.option(
        "--port",
        "ports",
        multiple=True,
        type=click.IntRange(1, 65535),
        help="A port that your program permits besides 80 and 443.",
    )
    return allow(port(command))


def permitted(options: dict[str, Any], *names: str) -> EndpointOptions:
    """Take them out of a command's options. *names*: variables that may be read."""
    from sa_outbox.operations.sealing import READABLE  # noqa: PLC0415 - not for --help
    from sa_outbox.relay.endpoints import endpoint_options  # noqa: PLC0415 - not for the help

    return endpoint_options(
        allow=options.pop("allow"),
        ports=(80, 443, *options.pop("ports")),
        secrets_from_env=(*READABLE, *names),
    )


@click.group()
def endpoints() -> None:
    """Add, change, test and remove webhook endpoints.

    \b
    Each endpoint is a listener of its own, webhook:NAME. Secrets are stored sealed, with the key in
    SA_OUTBOX_SECRET_KEY, or as the name of an environment variable of the consumer. Consumers whose
    outbox says outbox.webhooks() notice changes by themselves.
    """


for _command in (change, new_key, reseal, rotate):
    endpoints.add_command(_command)


@endpoints.command("list")
@place_options
def list_(**options: Any) -> None:
    """List every endpoint: what it gets, whether it is disabled. Never its secrets."""
    from sa_outbox.errors import ConfigError  # noqa: PLC0415 - not for --help
    from sa_outbox.operations import sealing  # noqa: PLC0415 - not for the help
    from sa_outbox.operations.endpoints import list_endpoints  # noqa: PLC0415 - not for --help

    found, wrong = place_of(options).ask(list_endpoints)
    headers = ("ENDPOINT", "URL", "ON", "WHERE", "TENANT", "ORDER", "SECRETS", "DISABLED", "WHY")
    rows = [
        [
            each.name,
            each.url,
            " ".join(each.delivering.on),
            "-" if each.delivering.where is None else json.dumps(each.delivering.where),
            each.delivering.tenant or "-",
            each.delivering.order,
            ", ".join(sealing.shown(one) for one in each.secrets) or "-",
            moment(each.disabled_at),
            each.disabled_why or "-",
        ]
        for each in found
    ]
    click.echo(table(headers, rows) if rows or wrong else "there is no endpoint")
    if wrong:
        with cli_errors():
            raise ConfigError("; ".join(wrong))


@endpoints.command()
@click.argument("name")
@click.argument("endpoint_url", metavar="URL")
@delivering_options(changing=False)
@click.option(
    "--secret-env", help="The consumer's environment variable that holds the signing secret."
)
@click.option(
    "--bearer-file",
    type=click.File(),
    help="A file with a token for the Authorization header; - for standard input.",
)
@permit_options
@place_options
@operator_options
def add(
    *,
    name: str,
    endpoint_url: str,
    on: tuple[str, ...],
    secret_env: str | None,
    bearer_file: IO[str] | None,
    **options: Any,
) -> None:
    """Send the events --on to URL.

    It gets what is committed from the moment when a running consumer has seen it, about five
    seconds from now. Or the next that starts.

    Without --secret-env a secret is generated, stored sealed, and printed once: the receiver needs
    it. A token of --bearer-file is stored sealed, too.
    """
    from dataclasses import fields, replace  # noqa: PLC0415 - not for --help

    from sa_outbox.operations import sealing  # noqa: PLC0415 - not for --help
    from sa_outbox.operations.endpoint import Delivering, Endpoint  # noqa: PLC0415 - not for --help
    from sa_outbox.operations.endpoints import add_endpoint  # noqa: PLC0415 - not for --help
    from sa_outbox.relay.endpoints import check_endpoint  # noqa: PLC0415 - not for --help
    from sa_outbox.webhooks import new_secret  # noqa: PLC0415 - not for --help

    how = {each.name: options.pop(each.name) for each in fields(Delivering) if each.name != "on"}
    place, operator = place_of(options), operator_of(options)
    with cli_errors():
        delivering = Delivering(on=on, **how)
        plain = Endpoint(name=name, url=endpoint_url, delivering=delivering, secrets=())
        check_endpoint(plain, permitted(options))
        made = new_secret() if secret_env is None else None
        stored = stored_secret(secret_env, made, plain.binding("secret"))
        bearer = None
        if bearer_file is not None:
            bearer = sealing.seal(token_of(bearer_file), plain.binding("bearer"))
        endpoint = replace(plain, secrets=(stored,), bearer=bearer)
    place.ask(lambda c, tables: add_endpoint(c, tables, endpoint, operator))
    click.echo(f"endpoint {name}: added, as listener {endpoint.listener}")
    click.echo(UNTIL_SEEN)
    warn_of(secret_env)
    show_secret(made)


@endpoints.command()
@click.argument("name")
@click.argument("endpoint_url", metavar="URL")
@permit_options
@place_options
@operator_options
def move(*, name: str, endpoint_url: str, **options: Any) -> None:
    """Send NAME's events to URL from now on.

    Its secrets stay. They are sealed for its URL, so they are resealed, which needs
    SA_OUTBOX_SECRET_KEY.
    """
    from sa_outbox.operations.endpoint import Delivering, Endpoint  # noqa: PLC0415 - not for --help
    from sa_outbox.operations.endpoints import move_endpoint  # noqa: PLC0415 - not for --help
    from sa_outbox.relay.endpoints import check_endpoint  # noqa: PLC0415 - not for --help

    place, operator = place_of(options), operator_of(options)
    with cli_errors():
        there = Endpoint(name=name, url=endpoint_url, delivering=Delivering(on=("*",)), secrets=())
        check_endpoint(there, permitted(options))
    place.ask(lambda c, tables: move_endpoint(c, tables, name, endpoint_url, operator))
    click.echo(f"endpoint {name}: moved to {endpoint_url}")


@endpoints.command()
@click.argument("name")
@place_options
@operator_options
def disable(*, name: str, **options: Any) -> None:
    """Send NAME nothing until it is enabled. Its cursor stays in place and blocks retention."""
    from sa_outbox.operations.endpoints import disable_endpoint  # noqa: PLC0415 - not for --help

    place, operator = place_of(options), operator_of(options)
    changed = place.ask(lambda c, tables: disable_endpoint(c, tables, name, operator))
    click.echo(f"endpoint {name}: {'disabled' if changed else 'was already disabled'}")


@endpoints.command()
@click.argument("name")
@place_options
@operator_options
def enable(*, name: str, **options: Any) -> None:
    """Let NAME continue where it left off. To skip what was missed:
    `sa-outbox listeners skip webhook:NAME --to-now` before."""
    from sa_outbox.operations.endpoints import enable_endpoint  # noqa: PLC0415 - not for --help

    place, operator = place_of(options), operator_of(options)
    changed = place.ask(lambda c, tables: enable_endpoint(c, tables, name, operator))
    click.echo(f"endpoint {name}: {'enabled' if changed else 'was not disabled'}")


@endpoints.command()
@click.argument("name")
@place_options
@operator_options
@yes_option
def remove(*, name: str, yes: bool, **options: Any) -> None:
    """Remove NAME. Then `sa-outbox listeners retire webhook:NAME` removes its cursor."""
    from sa_outbox.operations.endpoints import remove_endpoint  # noqa: PLC0415 - not for --help

    place, operator = place_of(options), operator_of(options)
    confirm(place, f"endpoint {name!r} gets no more events; its secrets are gone.", name, yes=yes)
    place.ask(lambda c, tables: remove_endpoint(c, tables, name, operator))
    click.echo(f"endpoint {name}: removed")


@endpoints.command()
@click.argument("name")
@click.option(
    "--read-env",
    multiple=True,
    metavar="VARIABLE",
    help="A variable that a secret may be read from, besides SA_OUTBOX_WEBHOOK_*.",
)
@permit_options
@place_options
def test(*, name: str, read_env: tuple[str, ...], **options: Any) -> None:
    """Send NAME a signed message now, and print its answer.

    The type of the message is outbox.test.
    """
    import anyio  # noqa: PLC0415 - not for --help

    from sa_outbox.operations.endpoints import find_endpoint  # noqa: PLC0415 - not for --help
    from sa_outbox.relay.endpoints import send_test  # noqa: PLC0415 - not for --help

    found = place_of(options).ask(lambda c, tables: find_endpoint(c, tables, name))
    with cli_errors():
        answer = anyio.run(send_test, found, permitted(options, *read_env))
    if answer is not None:
        raise click.ClickException(f"endpoint {name}: {type(answer).__name__}: {answer}")
    click.echo(f"endpoint {name}: took it")
