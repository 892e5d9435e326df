"""From the options of a consumer process to its exit code.

Every expected failure is a log line without a traceback. No message contains a password.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import anyio
from anyio import CancelScope

from sa_outbox.policy.checks import known_instead

from ..consumer import Consumer, ConsumerSettings
from ..consumer.shared.stop_reason import StopReason
from ..errors import ConfigError, LifespanError, NotDrained, SchemaError
from ..observe import BatchSettled, in_batches
from ..schema.url import VARIABLES, parse_database_url, parse_given_url
from .database_wait import Unreachable, Waiting, explain, is_of_the_database
from .exit_codes import Exit
from .garbage import spare_what_is_loaded
from .loader import load_observer, load_outbox
from .logs import make_log, take_standard_logging
from .monitor import make_monitor
from .stop import Ending, woken_by_signal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from sqlalchemy import URL

    from ..logs import Log
    from ..monitoring import Monitor
    from ..observe import Observation
    from ..outbox import Outbox
    from .logs import Format


def consume(
    app: str,
    url: str | None,
    listen_url: str | None,
    listeners: tuple[str, ...],
    observers: tuple[str, ...],
    settings: Mapping[str, Any],
    *,
    form: Format | None,
    patience: float,
    monitor: tuple[int | None, str, bool],
    once: bool,
    limit: int | None,
) -> int:
    """Run a consumer process. Raises :class:`ConfigError`; every other outcome has an exit code."""
    outbox = load_outbox(app)
    # The program may have read its .env file meanwhile.
    given = url or next(filter(None, map(os.environ.get, VARIABLES)), None)
    database = parse_database_url(given)
    listen = listen_url and parse_given_url(listen_url, "listen_url", "SA_OUTBOX_LISTEN_URL")
    consumer = Consumer(
        outbox,
        database,
        listeners=_known(outbox, listeners),
        listen_url=listen or None,
        settings=ConsumerSettings(**settings),
        observers=[load_observer(each) for each in observers],
    )
    port, host, metrics = monitor
    monitoring = make_monitor(consumer, port, host, metrics=metrics)
    chosen = consumer.settings
    log = make_log(form, chosen.log_level, sys.stdout, chosen.log_starts)
    take_standard_logging(form, sys.stderr)
    process = Process(consumer, database, log, patience, monitoring, once=once, limit=limit)
    spare_what_is_loaded()
    return process.run()


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
        limit: int | None = None,
    ) -> None:
        self._consumer = consumer
        self._database = database
        self._log = log
        self._patience = patience
        self._monitor = monitor
        self._once = once
        self._limit = limit
        self._tally: Counter[str] = Counter()
        self._ending: Ending | None = None

    def run(self) -> int:
        """Run the consumer. Raises :class:`ConfigError`; every other outcome has an exit code."""
        try:
            # Faster, where it is installed.
            return anyio.run(self._run, backend_options={"use_uvloop": bool(find_spec("uvloop"))})
        except (KeyboardInterrupt, SystemExit) as error:
            # Raised in one of the program's own tasks. SIGINT is handled like the other signals.
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
        with scope, self._monitor as monitor, ending, woken_by_signal(consumer):
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
            self._consumer.observers.add(self._count)
            attempt = self._consumer.settings.probe_timeout.total_seconds()
            waiting = Waiting(self._database, self._log, within=self._patience, attempt=attempt)
            await waiting.start(self._work)
        except ConfigError:
            raise
        except NotDrained as error:
            return self._not_drained(error)
        except Exception as error:  # noqa: BLE001 - every error has an exit code
            return self._failed(error)
        return self._stopped()

    async def _work(self) -> None:
        if self._once:
            done = await self._consumer.drain(retries=False, limit=self._limit)
            text = "limit reached" if done.limited else "drained"
            self._log.say("info", text, **self._summary(), waiting=done.waiting)
        else:
            await self._consumer.run()

    def _not_drained(self, error: NotDrained) -> Exit:
        log, summary = self._log, self._summary()
        if error.waiting:
            log.say("warning", "events wait for a relay", waiting=error.waiting, **summary)
            return Exit.WAITING
        if self._consumer.stop_reason is StopReason.DRAINED:
            log.say("error", "the database went away at the end", reason=str(error), **summary)
            return Exit.DATABASE
        log.say("info", "stopped before all was handled", **summary)
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
        if isinstance(error, LifespanError):
            log.say_error("lifespan failed", error, reason=str(error))
        else:
            log.say_error("unexpected error", error)
        return Exit.ERROR

    def _stopped(self) -> Exit:
        """Stopped properly, but by whom? A process that was not asked to stop should be
        restarted."""
        return Exit(self._consumer.stop_reason.exit_code)

    @in_batches
    def _count(self, observation: Observation) -> None:
        if isinstance(observation, BatchSettled):
            for group in observation.groups:
                self._tally[group.outcome] += len(group.seconds)

    def _summary(self) -> dict[str, int]:
        tally = self._tally
        return {"handled": tally["done"], "retried": tally["retry"], "dead": tally["dead"]}


def _known(outbox: Outbox, names: tuple[str, ...]) -> tuple[str, ...] | None:
    for name in names:
        if name not in outbox.listeners:
            known = [each.name for each in outbox.listeners]
            raise ConfigError(f"there is no listener {name!r}{known_instead(name, known)}")
    return names or None
