"""A log in memory, as its readers see it, and a listener that works its way along it.

``Log`` is only about ids: drawn in order by writers that hold the lock, visible in any order, or
never. ``Consuming`` plays writers, snapshots, reads, settling in any order, writes that fail, and
crashes, by chance; how it reads is said by whoever derives from it. It checks itself after each
step, and a failure tells the story. By chance and not by Hypothesis's own machine: that takes a
hundred times as long for a step, and the faults of this protocol lie many steps deep.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from random import Random
from typing import Any, TypeVar

from sa_outbox.consumer.position.gaps import Gaps
from sa_outbox.consumer.position.horizon import Horizon, HorizonSnapshot
from sa_outbox.consumer.position.progress import Progress, Saved
from sa_outbox.event.row import EVENT_TYPE, ID, MATCHES, PAYLOAD

T = TypeVar("T")


class Row:
    """What is needed of a row of the log: its id, and whether the listener asked for its type."""

    def __init__(self, position: int, *, matches: bool = True) -> None:
        self.position = position
        self.matches = matches

    def __getitem__(self, column: int) -> Any:
        event_type = "a" if self.matches else "b"
        payload = "1" if self.matches else None
        known = {ID: self.position, EVENT_TYPE: event_type, PAYLOAD: payload, MATCHES: self.matches}
        return known[column]

    def __repr__(self) -> str:
        return f"{self.position}{'' if self.matches else ' (of another type)'}"


class Log:
    def __init__(self) -> None:
        self.next_id = 1
        self.visible: set[int] = set()
        self.matching: set[int] = set()
        """Those of the listener's types, visible or not."""
        self.open: dict[str, set[int]] = {}
        """What each transaction has drawn that is not visible yet."""
        self.leaving: set[str] = set()
        """Transactions that have ended, and still hold the lock."""
        self._begun = 0

    @property
    def ceiling(self) -> int:
        return max(self.visible, default=0)

    @property
    def holders(self) -> set[str]:
        return {*self.open, *self.leaving}

    @property
    def may_appear(self) -> set[int]:
        return set().union(*self.open.values())

    def begin(self) -> str:
        self._begun += 1
        writer = f"w{self._begun}"
        self.open[writer] = set()
        return writer

    def draw(self, writer: str, *, matches: bool = True) -> int:
        drawn, self.next_id = self.next_id, self.next_id + 1
        self.open[writer].add(drawn)
        if matches:
            self.matching.add(drawn)
        return drawn

    def roll_back_to_savepoint(self, writer: str) -> None:
        if self.open[writer]:
            self.open[writer].remove(max(self.open[writer]))

    def commit(self, writer: str) -> None:
        """Visible now; the lock is held until ``release``."""
        self.visible |= self.open.pop(writer)
        self.leaving.add(writer)

    def roll_back(self, writer: str) -> None:
        del self.open[writer]
        self.leaving.add(writer)

    def release(self, writer: str) -> None:
        self.leaving.remove(writer)

    def read(
        self, *, cursor: int, upper: int, limit: int, gaps: Iterable[tuple[int, int]] = ()
    ) -> list[Row]:
        """As ``sql.log.reads`` does: everything in the gaps and after the cursor, oldest first."""
        found = {each for each in self.visible if cursor < each <= upper}
        for low, high in gaps:
            found |= {each for each in self.visible if low <= each <= high}
        return [Row(each, matches=each in self.matching) for each in sorted(found)[:limit]]


class Consuming:
    """One listener, crash after crash. ``stored`` is its row in the database."""

    progress_class: type[Progress] = Progress
    settles_in_order = False

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.crowd = self.random.randint(1, 5)
        """Most transactions that are open at once: with few, more is final."""
        self.log = Log()
        self.stored = Saved(0, "[]", revision=0)
        self.settled: set[int] = set()
        self.story: list[str] = []
        self.restart()

    def restart(self) -> None:
        """A new process: it knows what is stored."""
        self.horizon = Horizon()
        self.progress = self.progress_class(
            self.stored.position, self.stored.gaps, self.stored.revision
        )
        self.asked: int | None = None
        self.out: list[int] = []
        """Delivered in this life, not settled."""
        self.writing: tuple[list[int], Saved] | None = None

    def read_on(self, snapshot: HorizonSnapshot, room: int) -> tuple[list[int], bool]:
        """Read, tell the progress; return the listener's ids, and whether there may be more."""
        raise NotImplementedError

    def play(self, steps: int) -> None:
        usual: dict[Callable[[], None], float] = {
            self.write: 4,
            self.end_a_transaction: 3,
            self.release_a_lock: 4,
            self.ask_for_the_ceiling: 1,
            self.ask_for_the_holders: 1,
            self.observe: 3,
            self.read: 4,
            self.begin_to_settle: 4,
            self.end_the_settling: 4,
            self.crash: 0.3,
            self.reconnect: 0.2,
            **self.further_steps(),
        }
        # A new mixture each time: some faults need many snapshots between reads, some a long life.
        weights = {step: often * self.random.choice([0.1, 1, 3]) for step, often in usual.items()}
        try:
            for step in self.random.choices(list(weights), list(weights.values()), k=steps):
                step()
                self.check()
            self.come_to_an_end()
        except AssertionError as error:
            error.add_note("\n".join(self.story))
            raise

    def further_steps(self) -> dict[Callable[[], None], float]:
        return {}

    def emit(self, what: str) -> None:
        self.story.append(what)

    # The writers

    def write(self) -> None:
        writers = list(self.log.open)
        if not writers or (len(writers) < self.crowd and self.random.random() < 0.8):
            writers = [self.log.begin()]
        writer = self.random.choice(writers)
        for _ in range(self.random.randint(1, 3)):
            drawn = self.log.draw(writer, matches=self.random.random() < 0.7)
            kind = "" if drawn in self.log.matching else " (of another type)"
            self.emit(f"{writer} draws {drawn}{kind}")

    def end_a_transaction(self) -> None:
        if not self.log.open:
            return
        writer = self.random.choice(list(self.log.open))
        match self.random.randint(1, 5):
            case 1:
                self.emit(f"{writer} rolls back")
                self.log.roll_back(writer)
            case 2:
                self.emit(f"{writer} rolls back to a savepoint")
                self.log.roll_back_to_savepoint(writer)
            case _:
                self.emit(f"{writer} commits {self.log.open[writer] or 'nothing'}")
                self.log.commit(writer)

    def release_a_lock(self) -> None:
        if self.log.leaving:
            writer = self.random.choice(sorted(self.log.leaving))
            self.emit(f"{writer} releases its lock")
            self.log.release(writer)

    # The horizon

    def ask_for_the_ceiling(self) -> None:
        self.asked = self.log.ceiling
        self.emit(f"the ceiling is {self.asked}")

    def ask_for_the_holders(self) -> None:
        if self.asked is not None:
            snapshot = self.horizon.observe(self.asked, self.log.holders)
            self.asked = None
            self.emit(f"the holders are {sorted(self.log.holders)}; final is {snapshot.final}")

    def observe(self) -> None:
        self.ask_for_the_ceiling()
        self.ask_for_the_holders()

    def reconnect(self) -> None:
        self.horizon.forget()
        self.asked = None
        self.emit("reconnects")

    # Reading

    def read(self) -> None:
        if self.horizon.latest.number:
            self.take_in(self.random.choice([1, 2, 3, 5, 1000]))

    def take_in(self, room: int) -> bool:
        found, more = self.read_on(self.horizon.latest, room)
        self.emit(f"reads {found}, room {room}; then {self.progress.holes}")
        self.deliver(found)
        return more

    def deliver(self, found: list[int]) -> None:
        assert set(found) <= self.log.visible & self.log.matching
        assert not set(found) & self.settled, "settled, and delivered again"
        assert not set(found) & set(self.out), "delivered twice"
        self.out += found

    # Settling

    def begin_to_settle(self) -> None:
        if self.writing is None:
            count = self.random.randint(0, len(self.out))
            some = self.random.sample(self.out, count)
            gone = self.out[:count] if self.settles_in_order else some
            self.writing = gone, self.progress.after(gone)
            self.emit(f"begins to settle {gone}: {self.writing[1]}")

    def end_the_settling(self) -> None:
        if self.writing is None:
            return
        gone, new = self.writing
        if self.random.random() < 0.2:
            self.emit("the transaction fails")
        else:
            self.commit_the_settling()
            self.progress.settle(gone, new)
            self.out = [each for each in self.out if each not in gone]
        self.writing = None

    def commit_the_settling(self) -> None:
        assert self.writing is not None
        gone, new = self.writing
        self.emit("it is committed")
        assert new.position >= self.stored.position, "the cursor went back"
        assert new.revision == self.stored.revision + 1, "not what follows from the one before"
        self.stored = new
        self.settled |= set(gone)

    def crash(self) -> None:
        if self.writing is not None and self.random.random() < 0.5:
            self.commit_the_settling()
        self.emit("the process dies")
        self.restart()

    # What holds

    def check(self) -> None:
        position, gaps = self.stored.position, Gaps.parse(self.stored.gaps)
        left = ((self.log.visible | self.log.may_appear) & self.log.matching) - self.settled
        assert all(each > position or each in gaps for each in left), "a crash would lose it"
        again = [each for each in self.settled if each > position or each in gaps]
        assert not again, "it would come again"
        assert all(high <= position for _, high in gaps), "a gap above the cursor"

    def come_to_an_end(self) -> None:
        """Nobody writes any more: then all is delivered, and nothing is remembered."""
        self.emit("everybody comes to an end")
        for writer in list(self.log.open):
            self.log.commit(writer)
        for writer in list(self.log.leaving):
            self.log.release(writer)
        if self.writing is not None:
            self.end_the_settling()
        for _ in range(3):
            self.observe()
            while self.take_in(self.random.choice([1, 2, 5])):
                pass
        self.writing = list(self.out), self.progress.after(self.out)
        self.commit_the_settling()
        assert self.settled == self.log.visible & self.log.matching, "lost"
        assert (self.stored.position, self.stored.gaps) == (self.log.ceiling, "[]")


def finished(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that has nothing to wait for."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("it waits for something")
