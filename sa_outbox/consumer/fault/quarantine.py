"""How careful to be after a crash. Pure.

An expired lease means that its holder vanished: it died, perhaps because of an event, more often
because of a deploy, a lost node or lack of memory. A verdict takes three steps:

1. At full speed nothing is written before an attempt, so nobody knows what was in flight. The next
   holder is **narrow**: it takes few events at a time, *notes* each in the leased row before it is
   attempted, and removes it with the write that settles it.
2. If that holder vanishes too, the row names what was in flight: the **suspects**. The next holder
   attempts each of them **alone**, with nothing else in flight in its process, and *marks* it
   before that with the token of its term.
3. A holder that vanishes then has left its mark on one event. Marks are kept per event, so another
   suspect, or a new event attempted in between, resets nothing. An event with ``max_crashes`` marks
   is convicted. An attempt that ends, with any outcome, removes the marks.

Caution must not end before everything that may have been in flight at the crash was attempted under
it; otherwise a deadly event is met at full speed again and again. That covers:

- *The suspects in the row.* We wait for each by its position; they are not counted down. One in the
  log (above the cursor or in its gaps) is read in its turn: only lower ids go first, and nobody can
  add any. One with a row is claimed first, before anything that became due since. One that is
  neither in the log nor due anymore is gone, and we do not wait for it.
- *From the log*, after a crash at full speed: the next unsettled events. At most one batch was
  being handled and one was handled but not written (batch handlers have up to two in flight, and
  one read ahead). That many attempts are made in narrow windows. Only attempts count: not what was
  put behind another event of its key, or is scheduled for later. A transaction that was open at
  the crash and has committed since brings lower ids, which are counted though they were not in
  flight; an event beyond them may then be met at full speed once more. The ids below an event are
  finite, so that ends.
- *With a row of its own* (scheduled, retried, replayed): what was due at the takeover, or waited
  behind one that was. All of it is attempted first, however much becomes due meanwhile. Nothing can
  join it, so that ends too.

So a deadly event is convicted after one crash at full speed, one among few, and ``max_crashes``
alone. An innocent one is not: a mark is made while nothing else runs in the process, and stays only
if the process vanishes before the attempt ends. And a listener with slow handlers is not brought to
a crawl by every ``kill -9``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sa_outbox.declare.listener import Listener

    from ..handler.delivery import InFlight

NARROW = 16
"""Events in flight after a crash; more only if the listener has more concurrency. Halved with each
further crash."""


class CrashQuarantine:
    """*crashes*: how many consecutive holders of the listener vanished. *suspects*: the positions
    of events that were being attempted when one vanished, as far as known."""

    def __init__(self, crashes: int, suspects: Iterable[int], listener: Listener) -> None:
        self._size = listener.batch_size
        # A holder that dies of what it reads, before any attempt, has noted nothing: read less each
        # time.
        narrow = min(max(NARROW, listener.concurrency), listener.batch_size)
        self._narrow = max(1, narrow >> max(0, crashes - 1))
        self._suspects = set(suspects)
        self._asked_for_rows = False
        """All suspects that have a row were taken."""
        batches = 4 if listener.call.batch else 2
        self._of_the_log = batches * self._size if crashes else 0
        self._with_rows = bool(crashes)
        """Some that were due at the takeover may not have been attempted yet."""
        self._is_a_range = False
        self.is_on: bool = self._is_needed()
        self.is_over: bool = False
        """Everything that was in flight has been attempted: the crashes can be forgotten."""
        self.alone: bool = False
        """Suspects are attempted one by one, with nothing else in flight."""
        self.window: int = 0
        """Maximum number of events that may be read and not settled."""
        self._look()

    @property
    def suspects(self) -> list[int]:
        """Those to be attempted alone."""
        return sorted(self._suspects)

    @property
    def wants_rows(self) -> bool:
        """Whether to take deliveries with a row that may have been in flight."""
        return not self._asked_for_rows if self._suspects else self._with_rows

    def due(self, room: int, *, has_new: bool) -> int:
        """How much of *room* is for deliveries that became due since. The rest is for the log,
        which they would otherwise block, and the suspects in it."""
        if not self.is_on or not has_new:
            return room
        return 0 if self._suspects else (room + 1) // 2

    def covers(self, positions: Sequence[int]) -> None:
        """For a range: these are all of it, and any of them may have been in flight."""
        self._is_a_range = True
        self._suspects.intersection_update(positions)
        self._of_the_log = len(positions) if self._of_the_log else 0
        self._with_rows = False
        self._look()

    def settled(self, items: Iterable[InFlight]) -> None:
        for item in items:
            self._suspects.discard(item.position)
            if self._is_a_range or (not item.state and item.was_attempted):
                self._of_the_log = max(0, self._of_the_log - 1)
        self._look()

    def no_rows_left(self, is_in_the_log: Callable[[int], bool]) -> None:
        """All wanted rows have been attempted. Suspects that are not to be read from the log are
        gone."""
        if self._suspects:
            self._asked_for_rows = True
            self._suspects = {each for each in self._suspects if is_in_the_log(each)}
        else:
            self._with_rows = False
        self._look()

    def caught_up(self) -> None:
        """Nothing is left that could have been in flight."""
        self._suspects.clear()
        self._of_the_log = 0
        self._with_rows = False
        self._look()

    def _is_needed(self) -> bool:
        return bool(self._suspects or self._of_the_log or self._with_rows)

    def _look(self) -> None:
        if self.is_on and not self._is_needed():
            self.is_on = False
            self.is_over = True
        self.alone = bool(self._suspects)
        narrow = 1 if self.alone else self._narrow
        self.window = narrow if self.is_on else self._size
