"""How a consumer process ends: by signals, and by force when it does not end by itself.

The first SIGTERM, SIGINT or SIGHUP stops the consumer gracefully, the second one cancels
everything. Whatever must not depend on the event loop is done by a thread: a handler that blocks
the loop, or ignores its cancellation, can't keep the process alive.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, NoReturn

from sa_outbox.consumer.services.watchdog import stack_of
from sa_outbox.observe import (
    ConsumerStarted,
    ConsumerStopped,
    ConsumerStopping,
    HandlerIgnoredCancel,
    in_batches,
)

from .exit_codes import Exit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType, TracebackType

    from sa_outbox.consumer import Consumer
    from sa_outbox.logs import Log
    from sa_outbox.observe import Observation

MARGIN_SECONDS = 3.0
"""Seconds beyond the grace period to cancel handlers, settle, and release the leases."""
STUCK_MARGIN_SECONDS = 1.0
"""Seconds beyond the grace period when a handler is known to ignore its cancellation."""
SECOND_SIGNAL_SECONDS = 2.0
"""Seconds for everything after the second signal."""
LAST_LINE_SECONDS = 1.0
"""Seconds to write the last line: its reader may have stopped reading."""


class Ending:
    """Handles signals and observations while entered; the thread stays until the process ends.

    *stop* is called in the event loop with the name of the first signal, *cancel* at the second.
    """

    def __init__(
        self, log: Log, grace: float, *, stop: Callable[[str], None], cancel: Callable[[], None]
    ) -> None:
        self.started: bool = False
        """The consumer has started its work and can be stopped gracefully."""
        self.code: int | None = None
        """Set when everything was cancelled: the exit code for that."""
        self._log = log
        self._grace = grace
        self._stop = stop
        self._cancel = cancel
        self._loop = asyncio.get_running_loop()
        self._inbox: SimpleQueue[signal.Signals | Observation | Exit] = SimpleQueue()
        self._stuck = False
        self._restarts = False
        """The consumer is stopping to restart: not the end of the process."""
        self._begun: float | None = None
        self._deadline: float | None = None
        self._forced: int = Exit.FORCED
        self._why = "the grace period is over"
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Ending:
        threading.Thread(target=self._watch, name="sa_outbox ending", daemon=True).start()
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            before = signal.getsignal(each)
            if each is signal.SIGHUP and before is signal.SIG_IGN:
                continue  # nohup: it should survive its terminal
            self._before[each] = before
            signal.signal(each, self._hear)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        for each, before in self._before.items():
            signal.signal(each, before)  # type: ignore[arg-type]  # it was there before

    @in_batches
    def observe(self, observation: Observation) -> None:
        if isinstance(observation, ConsumerStarted):
            self.started = True
        elif isinstance(observation, (ConsumerStopping, ConsumerStopped, HandlerIgnoredCancel)):
            self._inbox.put(observation)

    def leave(self, code: Exit) -> None:
        """The work is over; only other threads can still keep the process alive."""
        self._inbox.put(code)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        # put() may be interrupted by itself. Everything else could wait for a lock that the
        # interrupted code holds, so the thread does it.
        self._inbox.put(signal.Signals(number))

    def _watch(self) -> None:
        signals = 0
        while True:
            try:
                heard = self._inbox.get(timeout=self._left())
            except Empty:
                self._end()
            if isinstance(heard, signal.Signals):
                signals += 1
                self._signalled(heard, signals)
            elif isinstance(heard, Exit):
                self._left_behind(heard)
            elif isinstance(heard, ConsumerStopped):
                if self._restarts and not signals:
                    self._begun = self._deadline = None
            else:
                if isinstance(heard, ConsumerStopping):
                    self._restarts = heard.restarts
                self._stuck |= isinstance(heard, HandlerIgnoredCancel)
                if self._stuck:
                    self._why = "a handler ignored its cancellation"
                if isinstance(heard, ConsumerStopping) or self._begun is not None:
                    self._begin()

    def _signalled(self, number: signal.Signals, count: int) -> None:
        if count == 1:
            self._begin()
            self._in_loop(lambda: self._stop(number.name))
        elif count == 2:
            self.code = self._forced = 128 + number
            self._why = f"{number.name}, the second signal"
            self._deadline = monotonic() + SECOND_SIGNAL_SECONDS
            self._in_loop(self._cancel)

    def _left_behind(self, code: Exit) -> None:
        if self.code is None:
            self._forced = code or self._forced
            self._why = "threads are left that do not end"
            self._begin()

    def _begin(self) -> None:
        """From now on the process has to end."""
        if self.code is not None:
            return
        now = monotonic()
        self._begun = now if self._begun is None else self._begun
        margin = STUCK_MARGIN_SECONDS if self._stuck else MARGIN_SECONDS
        self._deadline = self._begun + self._grace + margin

    def _left(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - monotonic())

    def _in_loop(self, call: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: the process is about to end
            self._loop.call_soon_threadsafe(call)

    def _end(self) -> NoReturn:
        words = threading.Thread(target=self._say_last_words, daemon=True)
        words.start()
        words.join(LAST_LINE_SECONDS)
        os._exit(self._forced)

    def _say_last_words(self) -> None:
        stacks = [
            f"{each.name}:\n{stack_of(each.ident or 0)}"
            for each in threading.enumerate()
            if not each.daemon
        ]
        self._log.say(
            "error",
            "ended by force",
            reason=self._why,
            exit_code=self._forced,
            stack="\n".join(stacks),
        )
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):  # None if it was closed
                stream.flush()


@contextmanager
def woken_by_signal(consumer: Consumer) -> Iterator[None]:
    """SIGUSR1 wakes a consumer that may sleep. For others it keeps its meaning, which is death."""
    if consumer.settings.idle_after is None:
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, consumer.wake)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGUSR1)
