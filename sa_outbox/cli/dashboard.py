"""``dashboard``: inspect and repair in a browser."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from sa_outbox.errors import ConfigError
from sa_outbox.schema.connect import shown
from sa_outbox.schema.url import database_url_option, names_options, parse_database_url

from .answers import called, cli_errors, read_catalogue

if TYPE_CHECKING:
    from sa_outbox.outbox import Outbox

_TOKEN = "SA_OUTBOX_DASHBOARD_TOKEN"  # noqa: S105 - the variable's name, not a password


@click.command()
@click.argument("target", metavar="[MODULE:ATTRIBUTE]", required=False, envvar="SA_OUTBOX_APP")
@database_url_option
@names_options
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8765,
    show_default=True,
    help="Port; 0 for any.",
)
@click.option(
    "--token",
    envvar=_TOKEN,
    show_envvar=True,
    help="Token to sign in with. Required for every address but the loopback. Better in the "
    "environment: everybody on the machine can read a command line.",
)
@click.option("--read-only", is_flag=True, help="Refuse every change.")
@click.option(
    "--mask",
    multiple=True,
    metavar="FIELD",
    envvar="SA_OUTBOX_DASHBOARD_MASK",
    show_envvar=True,
    help="A field of payloads and headers that is not shown: password, card.*. Repeatable; in the "
    "environment with spaces between.",
)
@click.option(
    "--insecure-cookies",
    is_flag=True,
    help="Let people sign in over plain HTTP, in a network that you trust.",
)
@click.option(
    "--catalogue",
    type=click.File(encoding="utf-8"),
    metavar="FILE",
    help="What sa-outbox catalog has written, if this dashboard does not know your program.",
)
@click.option(
    "--title", default="Outbox", show_default=True, help="Shown on top, to tell several apart."
)
@click.option(
    "--root-path",
    default="",
    help="Prefix under which a proxy serves it, as in /outbox. Needs a token.",
)
def dashboard(
    *,
    target: str | None,
    url: str | None,
    schema_name: str | None,
    prefix: str,
    host: str,
    port: int,
    token: str | None,
    read_only: bool,
    mask: tuple[str, ...],
    insecure_cookies: bool,
    catalogue: Any,
    title: str,
    root_path: str,
) -> None:
    """Inspect and repair the outbox in a browser.

    With MODULE:ATTRIBUTE, an outbox of your program as in shop.app:outbox, or SA_OUTBOX_APP in the
    environment, it knows which events your listeners want; without, it knows what the tables say.

    \b
    Examples:
        sa-outbox dashboard shop.app:outbox
        sa-outbox dashboard --read-only --mask password --mask "card.*"
    """
    from anyio import run  # noqa: PLC0415 - concerns no other command

    with cli_errors():
        database = parse_database_url(url)
        outbox = _outbox(target, schema_name, prefix)
        from sa_outbox.dashboard import Dashboard, server  # noqa: PLC0415 - needs the extra
        from sa_outbox.dashboard.guard import LOOPBACK_NAMES  # noqa: PLC0415 - needs the extra

        local = server.is_loopback(host)
        if token is None and not local:
            raise ConfigError(f"{host} is not this machine alone: set {_TOKEN}")
        if token is None and root_path:
            raise ConfigError(
                f"--root-path is for a proxy, and anyone who reaches that gets in: set {_TOKEN}"
            )
        application = Dashboard(
            outbox,
            database,
            token=token,
            allow_anonymous=token is None,
            allowed_hosts=LOOPBACK_NAMES if token is None else None,
            read_only=read_only,
            mask=mask,
            secure_cookies=not insecure_cookies,
            title=title,
            catalogue=None if catalogue is None else read_catalogue(catalogue),
        )
        opened = server.open_socket(host, port)
    where = f"[{host}]" if ":" in host else host
    at = f"http://{where}:{opened.getsockname()[1]}{root_path}/"
    click.echo(f"{called(outbox.settings.names)} in {shown(database)}: {at}  (Ctrl-C ends it)")
    with suppress(KeyboardInterrupt):
        run(server.DashboardServer(application, root_path).serve, [opened])


def _outbox(target: str | None, schema_name: str | None, prefix: str) -> Outbox:
    from sa_outbox.outbox import Outbox  # noqa: PLC0415 - loads SQLAlchemy: not for --help

    if target is None:
        return Outbox(schema=schema_name, prefix=prefix)
    from sa_outbox.consume.loader import load_outbox  # noqa: PLC0415 - not for --help

    return load_outbox(target)
