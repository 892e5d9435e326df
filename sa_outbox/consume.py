"""The command ``python -m sa_outbox.consume``, also ``sa-outbox consume``: a consumer process.

What goes wrong in an expected way is answered without a traceback: wrong usage on stderr, the rest
as a line of the log. No answer holds a password.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import anyio
import click
from anyio import CancelScope

from ._version import __version__
from .consumer import Consumer, ConsumerSettings
from .database_url import VARIABLES, database_url_option, parse_database_url, parse_given_url
from .errors import ConfigError, NotDrained, SchemaError
from .loading import did_you_mean, load_outbox
from .logs import FORMATS, LEVELS, make_log, take_standard_logging
from .observe import DeliverySettled
from .process.garbage import spare_what_is_loaded
from .process.monitoring import make_monitor, monitor_options
from .process.options import seconds_from_zero, setting_options
from .process.stopping import Ending, Exit
from .process.streams import forget_closed_streams, hold_standard_streams
from .process.waiting import Unreachable, explain, is_of_the_database, reach

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from datetime import timedelta

    from sqlalchemy import URL

    from .logs import Format, Level, Log
    from .monitoring import Monitor
    from .observe import Observation
    from .outbox import Outbox

_EPILOG = """\b
Exit codes:
    0    stopped in good order (SIGTERM, SIGINT, SIGHUP); with --once: done
    1    an error that nobody expected; its traceback is in the log
    2    wrong usage
    3    the tables are missing, old or altered; the log says what mends them
    4    the database can't be reached, or refuses
    5    a handler raised SystemExit or KeyboardInterrupt
    6    a handler ignored its cancellation, or something else outlasted the grace
         period: ended by force; nothing is lost
    130  a second SIGINT: cancelled at once; 143 of SIGTERM, 129 of SIGHUP
"""


@click.command(
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.argument("app", metavar="MODULE:ATTRIBUTE", envvar="SA_OUTBOX_APP")
@database_url_option
@click.option(
    "--listen-url",
    metavar="URL",
    envvar="SA_OUTBOX_LISTEN_URL",
    show_envvar=True,
    help="Another address for LISTEN: past a pooler, through which no notification comes.",
)
@click.option(
    "--listener",
    "listeners",
    metavar="NAME",
    multiple=True,
    envvar="SA_OUTBOX_LISTENERS",
    show_envvar=True,
    help="Work for this listener only; may be given several times (in the variable: with spaces).",
)
@click.option(
    "--once",
    is_flag=True,
    envvar="SA_OUTBOX_ONCE",
    show_envvar=True,
    help="Handle what is there and exit: for cron. What failed and is due later is left for the "
    "next time, listeners of other processes to them.",
)
@click.option(
    "--wait-for-database",
    metavar="SECONDS",
    type=seconds_from_zero,
    default="30",
    show_default=True,
    envvar="SA_OUTBOX_WAIT_FOR_DATABASE",
    show_envvar=True,
    help="How long to try at the start; later it is waited for as long as it takes.",
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
@click.option(
    "--log-level",
    "level",
    type=click.Choice(LEVELS),
    default="info",
    show_default=True,
    envvar="SA_OUTBOX_LOG_LEVEL",
    show_envvar=True,
    help="debug has several lines for every event.",
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
    wait_for_database: timedelta,
    form: Format | None,
    level: Level,
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
        export SA_OUTBOX_DATABASE_URL=postgresql://user:password@host/name
        python -m sa_outbox.consume shop.app:outbox
        python -m sa_outbox.consume shop.app:outbox --once
    """
    hold_standard_streams()
    with _told_as_usage():
        outbox = load_outbox(app)
        # A program may have read its .env file meanwhile.
        given = url or next(filter(None, map(os.environ.get, VARIABLES)), None)
        database = parse_database_url(given)
        listen = listen_url and parse_given_url(listen_url, "listen_url", "SA_OUTBOX_LISTEN_URL")
        consumer = Consumer(
            outbox,
            database,
            listeners=_known(outbox, listeners),
            listen_url=listen or None,
            settings=ConsumerSettings(**settings),
        )
        monitor = make_monitor(consumer, monitor_port, monitor_host, metrics=metrics)
        log = make_log(form, level, sys.stdout)
        take_standard_logging(form, sys.stderr)
        patience = wait_for_database.total_seconds()
        process = Process(consumer, database, log, patience, monitor, once=once)
        spare_what_is_loaded()
        code = process.run()
    forget_closed_streams()
    raise SystemExit(code)


class Process:
    """A consumer from the start of its process to its exit code."""

    def __init__(
        self,
        consumer: Consumer,
        database: URL,
        log: Log,
        patience: float,
        monitor: AbstractContextManager[Monitor | None],
        *,
        once: bool,
    ) -> None:
        self._consumer = consumer
        self._database = database
        self._log = log
        self._patience = patience
        self._monitor = monitor
        self._once = once
        self._tally: Counter[str] = Counter()
        self._ending: Ending | None = None

    def run(self) -> int:
        """Raises :class:`ConfigError`; every other way to end has its exit code."""
        try:
            # Quicker, where it is installed.
            return anyio.run(self._run, backend_options={"use_uvloop": bool(find_spec("uvloop"))})
        except (KeyboardInterrupt, SystemExit) as error:
            # Raised in a task of the program's own. SIGINT is a signal like the others.
            self._log.say("error", "ended by the program", error=type(error).__name__)
            if self._ending is not None:
                self._ending.leave(Exit.HANDLER)
            return Exit.HANDLER

    async def _run(self) -> int:
        consumer, scope = self._consumer, CancelScope()

        def stop(reason: str) -> None:
            if ending.started:
                consumer.stop(reason)
            else:
                self._log.say("info", "stopping", reason=reason)
                scope.cancel()

        grace = consumer.settings.grace_period.total_seconds()
        ending = self._ending = Ending(self._log, grace, stop=stop, cancel=scope.cancel)
        with scope, self._monitor as monitor, ending:
            if monitor is not None:
                self._log.say("info", "monitor", host=monitor.host, port=monitor.port)
            for each in (self._log, ending.observe):
                consumer.observers.add(each)
            code = await self._consume()
            ending.leave(code)
            return code
        return ending.code or Exit.STOPPED  # cancelled: by the second signal, or before it began

    async def _consume(self) -> Exit:
        try:
            connecting = self._consumer.settings.probe_timeout.total_seconds()
            await reach(self._database, self._log, within=self._patience, attempt=connecting)
            if self._once:
                self._consumer.observers.add(self._count)
                await self._consumer.drain(retries=False)
                self._log.say("info", "drained", **self._summary())
            else:
                await self._consumer.run()
        except ConfigError:
            raise
        except NotDrained:
            self._log.say("info", "stopped before all was handled", **self._summary())
        except Exception as error:  # noqa: BLE001 - whatever it is, it has an exit code
            return self._failed(error)
        return self._stopped()

    def _failed(self, error: Exception) -> Exit:
        log = self._log
        if isinstance(error, SchemaError):
            log.say("error", "the tables are not as they must be", reason=str(error))
            return Exit.SCHEMA
        if isinstance(error, Unreachable):
            log.say("error", "the database can't be reached", reason=str(error))
            return Exit.DATABASE
        if is_of_the_database(error):
            reason = explain(error, self._database)
            log.say("error", "the database refuses", reason=reason)
            return Exit.DATABASE
        log.say_error("an error that nobody expected", error)
        return Exit.ERROR

    def _stopped(self) -> Exit:
        """Stopped in good order, but by whom? Who is not asked to stop should be started again."""
        reason = self._consumer.reason
        if "SystemExit" in reason or "KeyboardInterrupt" in reason:
            return Exit.HANDLER
        return Exit.FORCED if "ignored its cancellation" in reason else Exit.STOPPED

    def _count(self, observation: Observation) -> None:
        if isinstance(observation, DeliverySettled):
            self._tally[observation.outcome] += 1

    def _summary(self) -> dict[str, int]:
        tally = self._tally
        return {"handled": tally["done"], "failed": tally["retry"], "dead_letters": tally["dead"]}


def _known(outbox: Outbox, names: tuple[str, ...]) -> tuple[str, ...] | None:
    for name in names:
        if name not in outbox.listeners:
            known = [each.name for each in outbox.listeners]
            near = did_you_mean(name, known) or f"; there are: {', '.join(known)}"
            raise ConfigError(f"there is no listener {name!r}{near}")
    return names or None


@contextmanager
def _told_as_usage() -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


if __name__ == "__main__":
    command()
