"""``endpoints``: where webhooks go. Add, list, rotate, disable, enable, remove, test."""

from __future__ import annotations

from typing import Any

import click

from .answers import told_in_one_line
from .display import moment, table
from .operating import confirm, operator_of, operator_options, place_of, place_options, yes_option

allow_option = click.option(
    "--allow",
    multiple=True,
    metavar="NETWORK",
    help="A network inside of which your program allows endpoints, as outbox.webhooks(allow=...).",
)


@click.group()
def endpoints() -> None:
    """Where webhooks go.

    \b
    Each endpoint is a listener of its own, webhook:NAME. Secrets are stored sealed, with the key in
    SA_OUTBOX_SECRET_KEY, or as the name of an environment variable of the consumer. Consumers whose
    outbox says outbox.webhooks() notice changes by themselves.
    """


@endpoints.command("list")
@place_options
def list_(**options: Any) -> None:
    """Every endpoint: what it gets, whether it is disabled. Never its secrets."""
    from sa_outbox import sealing  # noqa: PLC0415 - not for the help
    from sa_outbox.operations.endpoints import list_endpoints  # noqa: PLC0415 - as above

    found = place_of(options).ask(list_endpoints)
    headers = ("ENDPOINT", "URL", "ON", "TENANT", "ORDER", "SECRETS", "DISABLED", "WHY")
    rows = [
        [
            each.name,
            each.url,
            " ".join(each.delivering.on),
            each.delivering.tenant or "-",
            each.delivering.order,
            ", ".join(sealing.shown(one) for one in each.secrets) or "-",
            moment(each.disabled_at),
            each.disabled_why or "-",
        ]
        for each in found
    ]
    click.echo(table(headers, rows) if rows else "there is no endpoint")


@endpoints.command()
@click.argument("name")
@click.argument("endpoint_url", metavar="URL")
@click.option("--on", multiple=True, required=True, help="Event types; may be given again.")
@click.option("--tenant", help="Only events of this tenant.")
@click.option("--order", type=click.Choice(["key", "total", "none"]), default="key")
@click.option("--concurrency", type=click.IntRange(1, 1000), default=4, show_default=True)
@click.option("--timeout", type=click.FloatRange(0.1, 300), default=15.0, show_default=True)
@click.option("--secret-env", help="The variable of the consumer that has the signing secret.")
@click.option("--bearer-env", help="The variable that has a token for the Authorization header.")
@allow_option
@place_options
@operator_options
def add(
    *,
    name: str,
    endpoint_url: str,
    on: tuple[str, ...],
    secret_env: str | None,
    bearer_env: str | None,
    allow: tuple[str, ...],
    **options: Any,
) -> None:
    """Send the events --on to URL, from now on.

    Without --secret-env a secret is made, stored sealed, and printed once: the receiver needs it.
    """
    from sa_outbox import sealing  # noqa: PLC0415 - as above
    from sa_outbox.operations.endpoints import (  # noqa: PLC0415 - as above
        Delivering,
        Endpoint,
        add_endpoint,
    )
    from sa_outbox.relay.endpoints import EndpointOptions, check_endpoint  # noqa: PLC0415

    how = {each: options.pop(each) for each in ("tenant", "order", "concurrency", "timeout")}
    place, operator = place_of(options), operator_of(options)
    with told_in_one_line():
        made, stored = _secret(secret_env)
        endpoint = Endpoint(
            name=name,
            url=endpoint_url,
            delivering=Delivering(on=on, **how),
            secrets=(stored,),
            bearer=None if bearer_env is None else sealing.named(bearer_env),
        )
        check_endpoint(endpoint, EndpointOptions(allow=allow))
    place.ask(lambda c, tables: add_endpoint(c, tables, endpoint, operator))
    click.echo(f"endpoint {name}: added, as listener {endpoint.listener}")
    _show(made)


@endpoints.command()
@click.argument("name")
@click.option("--secret-env", help="The variable of the consumer that has the new secret.")
@click.option("--finish", is_flag=True, help="Sign with the newest secret alone.")
@place_options
@operator_options
def rotate(*, name: str, secret_env: str | None, finish: bool, **options: Any) -> None:
    """Give NAME a new secret.

    Messages are signed with the new one and the one before it, until the receiver knows the new
    one: then `rotate NAME --finish`.
    """
    from sa_outbox.operations.endpoints import rotate_endpoint  # noqa: PLC0415 - as above

    if finish and secret_env:
        raise click.UsageError("--finish takes no new secret")
    place, operator = place_of(options), operator_of(options)
    made, stored = None, None
    if not finish:
        with told_in_one_line():
            made, stored = _secret(secret_env)
    active = place.ask(lambda c, tables: rotate_endpoint(c, tables, name, stored, operator))
    click.echo(f"endpoint {name}: messages are signed with {active} secret{'s' * (active > 1)}")
    _show(made)


@endpoints.command()
@click.argument("name")
@place_options
@operator_options
def disable(*, name: str, **options: Any) -> None:
    """Send NAME nothing until it is enabled. Its cursor stays where it is, and holds retention."""
    from sa_outbox.operations.endpoints import disable_endpoint  # noqa: PLC0415 - as above

    place, operator = place_of(options), operator_of(options)
    changed = place.ask(lambda c, tables: disable_endpoint(c, tables, name, operator))
    click.echo(f"endpoint {name}: {'disabled' if changed else 'was disabled already'}")


@endpoints.command()
@click.argument("name")
@place_options
@operator_options
def enable(*, name: str, **options: Any) -> None:
    """Let NAME go on where it stood. To leave out what was missed:
    `sa-outbox listeners skip webhook:NAME --to-now` before."""
    from sa_outbox.operations.endpoints import enable_endpoint  # noqa: PLC0415 - as above

    place, operator = place_of(options), operator_of(options)
    changed = place.ask(lambda c, tables: enable_endpoint(c, tables, name, operator))
    click.echo(f"endpoint {name}: {'enabled' if changed else 'was not disabled'}")


@endpoints.command()
@click.argument("name")
@place_options
@operator_options
@yes_option
def remove(*, name: str, yes: bool, **options: Any) -> None:
    """Forget NAME. `sa-outbox listeners retire webhook:NAME` removes its cursor then."""
    from sa_outbox.operations.endpoints import remove_endpoint  # noqa: PLC0415 - as above

    place, operator = place_of(options), operator_of(options)
    confirm(place, f"endpoint {name!r} gets nothing any more; its secrets are gone.", name, yes=yes)
    place.ask(lambda c, tables: remove_endpoint(c, tables, name, operator))
    click.echo(f"endpoint {name}: removed")


@endpoints.command()
@click.argument("name")
@allow_option
@place_options
def test(*, name: str, allow: tuple[str, ...], **options: Any) -> None:
    """Send NAME one signed message of type outbox.test now, and say what it answered."""
    import anyio  # noqa: PLC0415 - as above

    from sa_outbox.operations.endpoints import list_endpoints  # noqa: PLC0415 - as above
    from sa_outbox.relay.endpoints import EndpointOptions, send_test  # noqa: PLC0415 - as above

    found = {each.name: each for each in place_of(options).ask(list_endpoints)}
    if name not in found:
        raise click.ClickException(f"there is no endpoint {name!r}")
    with told_in_one_line():
        answer = anyio.run(send_test, found[name], EndpointOptions(allow=allow))
    if answer is not None:
        raise click.ClickException(f"endpoint {name}: {type(answer).__name__}: {answer}")
    click.echo(f"endpoint {name}: took it")


@endpoints.command("new-key")
def new_key() -> None:
    """Print a key for SA_OUTBOX_SECRET_KEY. Keep it where your other secrets are."""
    from sa_outbox import sealing  # noqa: PLC0415 - as above

    with told_in_one_line():
        click.echo(sealing.new_key())


def _secret(variable: str | None) -> tuple[str | None, str]:
    """A secret that was made, and how it is stored."""
    from sa_outbox import sealing  # noqa: PLC0415 - as above
    from sa_outbox.webhooks import new_secret  # noqa: PLC0415 - as above

    if variable is not None:
        return None, sealing.named(variable)
    made = new_secret()
    return made, sealing.seal(made)


def _show(secret: str | None) -> None:
    if secret is not None:
        click.echo("its secret, shown this once; the receiver verifies with it:")
        click.echo(secret)
