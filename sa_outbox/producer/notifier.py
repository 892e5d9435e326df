"""Wake the consumers after a commit: one NOTIFY for many commits, off the write path.

The promise. A poke that returned is followed by a NOTIFY that starts after it, or by a warning in
the log that the database is unreachable; then the NOTIFY follows once it is back. At interpreter
exit, what is owed is tried once more, for at most ``EXIT_SECONDS``. Pokes are lost silently only if
the process is killed or leaves through ``os._exit``, if an exit handler registered before this
module was imported pokes, or if an engine is garbage collected during an outage. A lost poke costs
the consumers one poll; it never loses an event.

How. ``poke`` marks its target (engine and channel) as owed and puts it into the inbox of one daemon
thread. While a target is owed, further pokes see the mark and return. The thread clears the mark
BEFORE it sends: a poke that arrives while a NOTIFY is in flight may be about a commit that the
NOTIFY's readers did not see, so the target is owed again. Two NOTIFYs to one target start at least
``INTERVAL_SECONDS`` apart; the first is not delayed.

Fork. A child starts without thread, connection and debts; its first poke creates its own. Whatever
was owed at the fork remains the parent's duty. The parent's connections stay in the child's memory
untouched: closing them there would write into the parent's conversation. A fork waits until the
thread has left the driver, for at most ``FORK_SECONDS``: a child born while OpenSSL holds one of
its locks, as it does while connecting, could never connect to anything.

Engines are held weakly, except between a poke and the first attempt to send it. When an engine is
garbage collected, its connection is closed. ``close`` is not final: a later poke connects again.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING

from ..policy.backoff import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, Backoff
from .sender import Sender

if TYPE_CHECKING:
    from sqlalchemy import Engine

INTERVAL_SECONDS = 0.010
"""Minimum seconds between the starts of two NOTIFYs on one channel of one engine."""
SEND_SECONDS = 5.0
"""Seconds after which an attempt to connect and send has failed; sender.py describes what it
covers."""
EXIT_SECONDS = 0.5
"""Maximum seconds by which the interpreter's exit is delayed for what is owed."""
FORK_SECONDS = 0.5
"""Maximum seconds a fork waits for the thread to leave the driver. That takes longer only if a
server is silent, and then no lock is held."""

log: logging.Logger = logging.getLogger("sa_outbox.notifier")


@dataclass(eq=False, slots=True)
class _Database:
    """State of one engine. ``away`` makes one outage one line in the log."""

    engine: weakref.ref[Engine]
    sender: Sender
    targets: dict[str, _Target] = field(default_factory=dict)
    away: bool = False


@dataclass(eq=False, slots=True)
class _Target:
    """A channel of a database. ``poke`` writes ``owed``; everything else belongs to the thread."""

    database: _Database
    channel: str
    owed: bool = False
    engine: Engine | None = None
    not_before: float = 0.0
    backoff: Backoff | None = None
    """From the first failure to the next success."""


@dataclass(eq=False, slots=True)
class _Request:
    """A caller waiting until nothing is owed; with *limit*, for one last attempt before the end."""

    limit: float | None = None
    done: threading.Event = field(default_factory=threading.Event)


class Notifier:
    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        # Keyed by the identity of the dialect: option engines share it, and dispose() does not
        # replace it.
        self._databases: dict[int, _Database] = {}
        # SimpleQueue: put() neither blocks nor breaks when it is interrupted by a finalizer or a
        # signal handler that also pokes. threading.Event would deadlock there.
        self._inbox: SimpleQueue[tuple[_Target, Engine] | _Database | _Request] = SimpleQueue()
        self._starting = threading.Lock()
        self._in_driver = threading.Lock()
        self._forking: int | None = None
        self._thread: threading.Thread | None = None
        self._due: dict[_Target, float] = {}
        self._waiting: list[_Request] = []
        self._exiting = False

    def poke(self, engine: Engine, channel: str) -> None:
        """Owe one NOTIFY on *channel*. Never blocks, never raises.

        Callable from any thread, inside or outside an event loop or greenlet. An engine that is not
        PostgreSQL is ignored.
        """
        try:
            try:
                target = self._databases[id(engine.dialect)].targets[channel]
            except KeyError:
                if engine.dialect.name != "postgresql":
                    return
                target = self._add_target(engine, channel)
            if target.owed or self._exiting:
                return
            put, item = self._inbox.put, (target, engine)
            # Nothing may come between these two lines: an interrupt there would leave the target
            # owed but not in the inbox, silent forever.
            target.owed = True
            put(item)
            if self._thread is None:
                self._start(target)
        except Exception:  # noqa: BLE001 - after_commit must not fail: the data is committed
            with suppress(Exception):
                log.warning("a poke failed; consumers find the events by polling")

    def settled(self, timeout: float) -> bool:
        """Wait until nothing is owed; False if something still is after *timeout* seconds."""
        return self._ask(_Request(), timeout)

    def close(self, timeout: float = 1.0) -> None:
        """Try once to send what is owed, give up the rest, close the connections.

        Returns after at most *timeout* seconds; the thread continues by itself.
        """
        self._ask(_Request(limit=timeout), timeout)

    def _ask(self, request: _Request, timeout: float) -> bool:
        if self._thread is None:
            return True
        self._inbox.put(request)
        return request.done.wait(timeout)

    def _add_target(self, engine: Engine, channel: str) -> _Target:
        key, databases, inbox = id(engine.dialect), self._databases, self._inbox
        database = databases.get(key)
        if database is None:

            def forget(_: weakref.ref[Engine]) -> None:
                # Runs inside the garbage collector, in any thread: closing is the thread's job. The
                # inbox is the one from before a fork: in a child nobody reads it.
                gone = databases.pop(key, None)
                if gone is not None:
                    inbox.put(gone)

            root = engine
            while (parent := getattr(root, "_proxied", None)) is not None:
                root = parent  # an option engine is often thrown away after one use
            database = _Database(weakref.ref(root, forget), Sender(engine))
            database = databases.setdefault(key, database)
        return database.targets.setdefault(channel, _Target(database, channel))

    def _start(self, target: _Target) -> None:
        if not self._starting.acquire(blocking=False):
            return  # another poke is handling it
        try:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="sa_outbox-notifier", daemon=True)
                self._thread = thread
                thread.start()
        except RuntimeError as error:
            self._thread, target.owed = None, False  # the next poke tries again
            if "interpreter shutdown" not in str(error):
                log.warning("no thread for NOTIFY; consumers find the events by polling: %s", error)
        finally:
            self._starting.release()

    def _run(self) -> None:
        while True:
            with suppress(Exception):  # a logging handler that raises must not end the thread
                self._step()

    def _step(self) -> None:
        wait = max(0.0, min(self._due.values()) - monotonic()) if self._due else None
        with suppress(Empty):
            # No local variable for the item: it would keep an engine alive during the next wait.
            self._accept(self._inbox.get(timeout=wait))
        now = monotonic()
        for target in [target for target, at in self._due.items() if at <= now]:
            self._attempt(target, SEND_SECONDS)
        if not self._due:
            while self._waiting:
                self._waiting.pop().done.set()

    def _accept(self, item: tuple[_Target, Engine] | _Database | _Request) -> None:
        match item:
            case (target, engine):
                if target.owed:  # else: two first pokes at once, and both got in
                    target.engine = engine
                    self._due.setdefault(target, target.not_before)
            case _Database():
                self._disconnect(item)
            case _Request():
                if item.limit is not None:
                    self._finish(item.limit)
                self._waiting.append(item)

    def _attempt(self, target: _Target, limit: float) -> None:
        database = target.database
        engine, target.engine = target.engine or database.engine(), None
        if engine is None:  # collected during an outage
            return self._give_up(database)
        started = monotonic()
        target.owed = False
        try:
            with self._in_driver:
                database.sender.send(engine, target.channel, limit)
        except Exception as error:  # noqa: BLE001 - a driver or creator may raise anything
            target.owed = True
            # The first failure may be a blip, or a program that stopped its own server and is about
            # to exit. A second failure shortly after is an outage.
            again = target.backoff is not None
            target.backoff = target.backoff or Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
            self._due[target] = monotonic() + target.backoff.next()
            if again and not database.away and not self._exiting:
                database.away = True
                text = "NOTIFY can't be sent to %s; consumers poll until it can: %s"
                log.warning(text, database.sender.name, database.sender.explain(engine, error))
        else:
            del self._due[target]
            target.not_before = started + INTERVAL_SECONDS
            target.backoff = None
            if database.away:
                database.away = False
                log.info("NOTIFY can be sent to %s again", database.sender.name)
        return None

    def _finish(self, limit: float) -> None:
        end = monotonic() + limit
        for target in list(self._due):
            self._attempt(target, max(0.0, end - monotonic()))
        for database in list(self._databases.values()):
            self._disconnect(database)

    def _disconnect(self, database: _Database) -> None:
        self._give_up(database)
        with self._in_driver:
            database.sender.close()

    def _give_up(self, database: _Database) -> None:
        for target in list(database.targets.values()):
            if self._due.pop(target, None) is not None:
                target.owed, target.engine, target.backoff = False, None, None

    def _exit(self) -> None:
        self._exiting = True
        self.close(EXIT_SECONDS)

    def _before_fork(self) -> None:
        if self._in_driver.acquire(timeout=FORK_SECONDS):
            self._forking = threading.get_ident()

    def _after_fork_in_parent(self) -> None:
        if self._forking == threading.get_ident():  # else: another thread forks as well, or silence
            self._forking = None
            self._in_driver.release()

    def _after_fork_in_child(self) -> None:
        _inherited.append(self._databases)
        self._begin()


_inherited: list[object] = []
"""The parent's connections, in a child: referenced so that nothing closes or collects them."""

notifier: Notifier = Notifier()
"""The process-wide notifier. Others are for tests: they ignore fork and exit."""

os.register_at_fork(
    before=notifier._before_fork,  # noqa: SLF001 - ours, as in the lines that follow
    after_in_parent=notifier._after_fork_in_parent,  # noqa: SLF001
    after_in_child=notifier._after_fork_in_child,  # noqa: SLF001
)
atexit.register(notifier._exit)  # noqa: SLF001
