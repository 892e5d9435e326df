"""Wake the consumers after a commit: one NOTIFY for many commits, off the write path.

The promise. A poke that returned is followed by a NOTIFY that starts after it, or by a warning in
the log that the database can't be reached; then the NOTIFY follows when it can. At the end of the
interpreter what is owed is tried once more, for ``AT_EXIT`` seconds at most. Lost without a word
are only pokes of a process that is killed or leaves by ``os._exit``, of an exit handler registered
before this module was imported, and of an engine that was garbage collected during an outage. A
lost poke costs the consumers one poll; events are never lost by it.

How. ``poke`` marks its target (engine and channel) as owed and puts it into the inbox of one daemon
thread. While a target is owed, further pokes see the mark and return. The thread clears the mark
BEFORE it sends: a poke that comes while a NOTIFY is on its way may speak of a commit which that
NOTIFY's readers did not see, so it is owed anew. Two NOTIFYs of one target start at least
``INTERVAL`` apart; the first is not delayed.

Fork. A child starts without thread, connection and debts; its first poke makes its own. What was
owed at the fork is the parent's duty. The parent's connections stay in the child's memory,
untouched: closing them there would write into the parent's conversation. A fork waits until the
thread has left the driver, for ``AT_FORK`` seconds at most: a child born while OpenSSL holds a lock
of its own, as it does when a connection is made, could never connect to anything.

Engines are held weakly, but for the moment between a poke and the first attempt to send it. When an
engine is garbage collected its connection is closed. ``close`` is not final: a later poke connects
again.
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

from .sender import Sender

if TYPE_CHECKING:
    from sqlalchemy import Engine

INTERVAL = 0.010
"""Least seconds between the starts of two NOTIFYs on one channel of one engine."""
LIMIT = 5.0
"""Seconds after which an attempt to connect and send has failed; what it binds: sender.py."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds between attempts while the database is away; doubled each time."""
AT_EXIT = 0.5
"""Most seconds the end of the interpreter is delayed for what is owed."""
AT_FORK = 0.5
"""Most seconds a fork waits; more only passes when a server is silent, and then no lock is held."""

log = logging.getLogger("sa_outbox.notifier")


@dataclass(eq=False, slots=True)
class _Database:
    """What belongs to one engine. ``away`` makes one outage one line in the log."""

    engine: weakref.ref[Engine]
    sender: Sender
    targets: dict[str, _Target] = field(default_factory=dict)
    away: bool = False


@dataclass(eq=False, slots=True)
class _Target:
    """A channel of a database. ``poke`` writes ``owed``; everything else is the thread's."""

    database: _Database
    channel: str
    owed: bool = False
    engine: Engine | None = None
    not_before: float = 0.0
    pause: float = FIRST_PAUSE


@dataclass(eq=False, slots=True)
class _Request:
    """A caller who waits until nothing is owed; with *limit*, for one last attempt and the end."""

    limit: float | None = None
    done: threading.Event = field(default_factory=threading.Event)


class Notifier:
    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        # By the identity of the dialect: option engines share it, dispose() does not replace it.
        self._databases: dict[int, _Database] = {}
        # SimpleQueue: put() neither blocks nor minds being interrupted by a finalizer or a signal
        # handler that pokes as well. threading.Event would deadlock there.
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

        For any thread, inside or outside of an event loop or a greenlet. An engine that is not
        PostgreSQL's is ignored.
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
            # Nothing may stand between these two lines: an interrupt there would leave the
            # target owed and not in the inbox, mute for ever.
            target.owed = True
            put(item)
            if self._thread is None:
                self._start(target)
        except Exception:  # noqa: BLE001 - after_commit must go on: the data is committed
            with suppress(Exception):
                log.warning("a poke failed; consumers find the events by polling")

    def settled(self, timeout: float) -> bool:
        """Wait until nothing is owed; False if something still is after *timeout* seconds."""
        return self._ask(_Request(), timeout)

    def close(self, timeout: float = 1.0) -> None:
        """Try once to send what is owed, give up the rest, close the connections.

        Returns after *timeout* seconds at the latest; the thread goes on by itself.
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
                # Runs inside the garbage collector, in any thread: closing is the thread's task.
                # The inbox is that of the time before a fork: in a child nobody reads it.
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
            return  # another poke is about it
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
            # No local variable for the item: it would keep an engine alive through the next wait.
            self._accept(self._inbox.get(timeout=wait))
        now = monotonic()
        for target in [target for target, at in self._due.items() if at <= now]:
            self._attempt(target, LIMIT)
        if not self._due:
            while self._waiting:
                self._waiting.pop().done.set()

    def _accept(self, item: tuple[_Target, Engine] | _Database | _Request) -> None:
        match item:
            case (target, engine):
                if target.owed:  # else: two first pokes at once, and both came in
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
        if engine is None:  # gone during an outage
            return self._give_up(database)
        started = monotonic()
        target.owed = False
        try:
            with self._in_driver:
                database.sender.send(engine, target.channel, limit)
        except Exception as error:  # noqa: BLE001 - whatever a driver or a creator raises
            target.owed = True
            self._due[target] = monotonic() + target.pause
            # The first failure may be a blip, or a program that has stopped its own server and is
            # about to end: the second one, a moment later, is an outage.
            again = target.pause > FIRST_PAUSE
            target.pause = min(2 * target.pause, LONGEST_PAUSE)
            if again and not database.away and not self._exiting:
                database.away = True
                text = "NOTIFY can't be sent to %s; consumers poll until it can: %s"
                log.warning(text, database.sender.name, database.sender.explain(engine, error))
        else:
            del self._due[target]
            target.not_before, target.pause = started + INTERVAL, FIRST_PAUSE
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
                target.owed, target.engine, target.pause = False, None, FIRST_PAUSE

    def _exit(self) -> None:
        self._exiting = True
        self.close(AT_EXIT)

    def _before_fork(self) -> None:
        if self._in_driver.acquire(timeout=AT_FORK):
            self._forking = threading.get_ident()

    def _after_fork_in_parent(self) -> None:
        if self._forking == threading.get_ident():  # else: another thread forks as well, or silence
            self._forking = None
            self._in_driver.release()

    def _after_fork_in_child(self) -> None:
        _inherited.append(self._databases)
        self._begin()


_inherited: list[object] = []
"""Connections of the parent, in a child: referenced so that nothing closes or collects them."""

notifier = Notifier()
"""The process's own. Others are for tests: they know nothing of fork and exit."""

os.register_at_fork(
    before=notifier._before_fork,  # noqa: SLF001 - ours, as all below
    after_in_parent=notifier._after_fork_in_parent,  # noqa: SLF001
    after_in_child=notifier._after_fork_in_child,  # noqa: SLF001
)
atexit.register(notifier._exit)  # noqa: SLF001
