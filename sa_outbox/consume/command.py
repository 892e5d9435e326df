"""The command ``python -m sa_outbox.consume``, also ``sa-outbox consume``: a consumer process.

Wrong usage is reported on stderr, without a traceback and without a password. This module loads
little, so that the first line appears at once: what a consumer needs takes longer to import than
to start.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from .._version import __version__
from ..errors import ConfigError
from ..schema.url import database_url_option
from .exit_codes import EXIT_CODES
from .logs import FORMATS, make_log
from .options import monitor_options, seconds_from_zero, setting_options
from .streams import forget_closed_streams, hold_standard_streams

if TYPE_CHECKING:
    from datetime import timedelta

    from .logs import Format


@click.command(
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.argument("app", metavar="MODULE:ATTRIBUTE", envvar="SA_OUTBOX_APP")
@database_url_option
@click.option(
    "--listen-url",
    metavar="URL",
    envvar="SA_OUTBOX_LISTEN_URL",
    show_envvar=True,
    help="Another URL for LISTEN: bypasses a pooler that delivers no notifications.",
)
@click.option(
    "--listener",
    "listeners",
    metavar="NAME",
    multiple=True,
    envvar="SA_OUTBOX_LISTENERS",
    show_envvar=True,
    help="Work on this listener only; repeatable (in the variable: separated by spaces).",
)
@click.option(
    "--once",
    is_flag=True,
    envvar="SA_OUTBOX_ONCE",
    show_envvar=True,
    help="Handle what is there and exit: for cron. Retries that are due later are left for the "
    "next run, and listeners that another process works on are left to that process.",
)
@click.option(
    "--limit",
    metavar="ATTEMPTS",
    type=click.IntRange(min=1),
    envvar="SA_OUTBOX_LIMIT",
    show_envvar=True,
    help="With --once: begin no more attempts than this. One event for two listeners counts twice.",
)
@click.option(
    "--wait-for-database",
    metavar="SECONDS",
    type=seconds_from_zero,
    default="30",
    show_default=True,
    envvar="SA_OUTBOX_WAIT_FOR_DATABASE",
    show_envvar=True,
    help="How long to try to connect at the start. Once it runs, it waits as long as it takes.",
)
@click.option(
    "--log-format",
    "form",
    type=click.Choice(FORMATS),
    envvar="SA_OUTBOX_LOG_FORMAT",
    show_envvar=True,
    help="auto: console on a terminal, else json. Not given: the program's own structlog, if it "
    "has configured one, else auto. The texts of errors, which may quote data, are shown on a "
    "terminal only.",
)
@monitor_options
@setting_options
@click.version_option(__version__, prog_name="sa_outbox.consume")
def command(
    *,
    app: str,
    url: str | None,
    listen_url: str | None,
    listeners: tuple[str, ...],
    once: bool,
    limit: int | None,
    wait_for_database: timedelta,
    form: Format | None,
    observers: tuple[str, ...],
    monitor_port: int | None,
    monitor_host: str,
    metrics: bool,
    **settings: Any,
) -> None:
    """Deliver the events of an outbox to its listeners, until it is stopped.

    MODULE:ATTRIBUTE is where your Outbox is, or SA_OUTBOX_APP in the environment. SIGTERM lets
    handlers finish for the grace period; a second one does not.

    \b
    Examples:
        export DATABASE_URL=postgresql://user:password@host/name
        python -m sa_outbox.consume shop.app:outbox
        python -m sa_outbox.consume shop.app:outbox --once
    """
    hold_standard_streams()
    if limit is not None and not once:
        raise click.UsageError("--limit goes with --once")
    log = make_log(form, settings["log_level"], sys.stdout)
    log.say("info", "starting", app=app, version=__version__)
    from .process import consume  # noqa: PLC0415 - after the first line

    try:
        code = consume(
            app,
            url,
            listen_url,
            listeners,
            observers,
            settings,
            form=form,
            patience=wait_for_database.total_seconds(),
            monitor=(monitor_port, monitor_host, metrics),
            once=once,
            limit=limit,
        )
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    forget_closed_streams()
    raise SystemExit(code)
