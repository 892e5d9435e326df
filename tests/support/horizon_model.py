"""Every interleaving of a few writers and one reader of the log: the grace period, model-checked.

A step is what nobody can come between. A writer locks the log, draws ids, commits (visible in one
step, its lock released in a later one) or rolls back. Retention may delete events. A reader goes
round and round through the statements of its ``Variant``; between two rounds it may restart.
``search`` walks breadth first through every state that can be reached, so the trace of a fault is a
shortest one.

A set of ids is an int with bit n for id n, from 1; a set of writers likewise, from 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import NamedTuple, TypeVar

T = TypeVar("T")
Look = tuple[int, int]  # a ceiling, and those of its holders that every later look saw too
Program = tuple[tuple[str, ...], ...]
"""What a reader asks for, statement by statement, each in one moment: the ceiling (newest visible
id), the holders of the lock, late rows (remembered holes that are visible by now), new rows (after
the cursor, up to the ceiling)."""
ROUND: Program = (("ceiling",), ("holders",), ("late", "new"))


class Fault(Enum):
    LOST = "a committed event is never delivered"
    DOUBLED = "an event is delivered twice"
    UNREAL = "an event is delivered that was not committed"
    OVERTAKEN = "an event is delivered after one that had to follow it"
    NOT_FINAL = "an id becomes visible that was called final"
    WATCHED = "a hole is remembered although nobody can fill it"


class Writer(NamedTuple):
    """A transaction that draws one id, or up to as many as it has keys."""

    keys: tuple[str, ...] = ("",)
    """The aggregate of each event; without a name, one that nobody else changes."""
    session_of: int | None = None
    """Follows this writer in the same session, and finds the ids that were cached there."""


@dataclass(frozen=True)
class Variant:
    """How a reader works, and on what kind of server; by default as it should be."""

    strict: bool = False
    program: Program = ROUND
    remembers_holes: bool = True
    saves_holes: bool = True
    releases_before_visible: bool = False
    ids_cached: int = 1
    deletes: str = ""
    """What retention deletes of the events up to the cursor: nothing, those "below holes", or
    "all" of them."""


class Log(NamedTuple):
    phases: tuple[str, ...]
    """Of each writer: idle, open, leaving (between the two steps of a commit), ended."""
    ids: tuple[tuple[int, ...], ...]
    """What each writer has drawn; forgotten as soon as nothing depends on who it was."""
    cached: tuple[int, ...]
    """The id that each writer's session has drawn ahead; 0 is none."""
    next_id: int = 1
    visible: int = 0
    held: int = 0
    """The writers that hold the lock."""


class Reader(NamedTuple):
    step: int = 0
    cursor: int = 0
    holes: int = 0
    looks: frozenset[Look] = frozenset()
    final: int = 0
    delivered: int = 0
    # Of the round that is under way:
    ceiling: int = 0
    holders: int = 0
    rows: int = 0


class State(NamedTuple):
    log: Log
    reader: Reader


class Result(NamedTuple):
    states: int
    fault: Fault | None
    trace: list[str]

    def __str__(self) -> str:
        head = f"{self.fault.value if self.fault else 'no fault'}; {self.states} states"
        return "\n".join([head, *(f"{n:3}. {line}" for n, line in enumerate(self.trace, 1))])


def up_to(position: int) -> int:
    return (2 << position) - 1


def newest(ids: int) -> int:
    return (ids | 1).bit_length() - 1


def listed(bits: int, prefix: str = "") -> str:
    return " ".join(f"{prefix}{n}" for n in range(bits.bit_length()) if bits >> n & 1) or "none"


def put(values: tuple[T, ...], index: int, value: T) -> tuple[T, ...]:
    return (*values[:index], value, *values[index + 1 :])


def unsettled(pending: list[Look], final: int) -> frozenset[Look]:
    """Only the looks that can raise *final* before another does: the rest decides nothing."""
    outdone = {a for a in pending for b in pending if a != b and b[0] >= a[0] and not b[1] & ~a[1]}
    return frozenset(look for look in pending if look[0] > final and look not in outdone)


class Model:
    def __init__(self, writers: tuple[Writer, ...], variant: Variant) -> None:
        self.writers, self.variant = writers, variant
        look = {"ceiling", "holders"}
        self.judging = max(n for n, asked in enumerate(variant.program) if look & set(asked))
        n = len(writers)
        self.start = State(Log(("idle",) * n, ((),) * n, (0,) * n), Reader())
        # The log has few states of its own, each met with many states of the reader.
        self.moves = cache(lambda log: [each for w in range(n) for each in self.moves_of(w, log)])

    def moves_of(self, w: int, log: Log) -> Iterator[tuple[str, Log]]:
        """What writer *w* can do next, in words, and the log after it."""
        drawn, released_first = log.ids[w], self.variant.releases_before_visible
        shown, freed = log.visible | sum(1 << n for n in drawn), log.held & ~(1 << w)
        texts = [f"w{w} commits: {listed(shown)} visible", f"w{w} releases its lock"]
        leaving = log._replace(phases=put(log.phases, w, "leaving"))
        ended = log._replace(phases=put(log.phases, w, "ended"), held=freed)
        match log.phases[w]:
            case "idle" if self.may_start(w, log):
                opened = put(log.phases, w, "open")
                yield f"w{w} locks the log", log._replace(phases=opened, held=log.held | 1 << w)
            case "open":
                if self.may_draw(w, log):
                    yield self.draw(w, log)
                if drawn and released_first:
                    yield texts[1], leaving._replace(held=freed)
                elif drawn:
                    yield texts[0], leaving._replace(visible=shown)
                yield f"w{w} rolls back", ended._replace(ids=put(log.ids, w, ()))
            case "leaving":
                ids = put(log.ids, w, drawn if any(self.writers[w].keys) else ())
                visible = shown if released_first else log.visible  # some may be deleted since
                yield texts[not released_first], ended._replace(visible=visible, ids=ids)

    def may_start(self, w: int, log: Log) -> bool:
        """Of neighbours that are alike, the first starts first: another order is no new case."""
        before = self.writers[w].session_of
        if before is not None:
            return log.phases[before] == "ended"
        return not w or self.writers[w - 1] != self.writers[w] or log.phases[w - 1] != "idle"

    def may_draw(self, w: int, log: Log) -> bool:
        """An event follows the change of its row, which waits for the row's last writer."""
        keys = self.writers[w].keys[len(log.ids[w]) :]
        others = [n for n in range(len(self.writers)) if log.held >> n & 1 and n != w]
        taken = [key for n in others for key in self.writers[n].keys[: len(log.ids[n])]]
        return bool(keys) and (keys[0] == "" or keys[0] not in taken)

    def draw(self, w: int, log: Log) -> tuple[str, Log]:
        before = self.writers[w].session_of
        session = w if before is None else before
        drawn, next_id, ahead = log.cached[session], log.next_id, 0
        if not drawn:
            drawn, next_id = next_id, next_id + self.variant.ids_cached
            ahead = drawn + 1 if self.variant.ids_cached > 1 else 0
        ids = put(log.ids, w, (*log.ids[w], drawn))
        cached = put(log.cached, session, ahead)
        return f"w{w} draws id {drawn}", log._replace(ids=ids, cached=cached, next_id=next_id)

    def advance(self, reader: Reader, log: Log) -> tuple[Reader, int]:
        """The reader after its next statement, and what it delivers then."""
        step, cursor, holes, looks, final, delivered, ceiling, holders, rows = reader
        asked = self.variant.program[step]
        ceiling = newest(log.visible) if "ceiling" in asked else ceiling
        holders = log.held if "holders" in asked else holders
        if "late" in asked:
            rows |= log.visible & holes
        if "new" in asked:
            rows |= log.visible & up_to(ceiling) & ~up_to(cursor)
        if step == self.judging:
            pending = [(height, who & holders) for height, who in (*looks, (ceiling, holders))]
            final = max(final, *(0 if who else height for height, who in pending))
            looks, holders = unsettled(pending, final), 0
        step += 1
        read = Reader(step, cursor, holes, looks, final, delivered, ceiling, holders, rows)
        return (read, 0) if step < len(self.variant.program) else self.deliver(read)

    def deliver(self, read: Reader) -> tuple[Reader, int]:
        cursor, rows, holes = read.cursor, read.rows, 0
        if self.variant.strict:
            cursor = max(cursor, read.final)
            while rows >> (cursor + 1) & 1:
                cursor += 1
            rows &= up_to(cursor)
        elif self.variant.remembers_holes:
            cursor = max(cursor, read.ceiling)
            passed = up_to(cursor) & ~up_to(read.cursor)
            holes = (read.holes | passed) & ~rows & ~up_to(read.final)
        else:
            cursor = max(cursor, newest(rows))
        return Reader(0, cursor, holes, read.looks, read.final, read.delivered | rows), rows

    def successors(self, state: State) -> Iterator[tuple[State, Fault | None]]:
        log, reader = state
        never = up_to(reader.final) & ~log.visible
        for _, after in self.moves(log):
            yield State(after, reader), Fault.NOT_FINAL if after.visible & never else None
        moved, batch = self.advance(reader, log)
        yield State(log, moved), self.fault_of(batch, state) if batch else None
        kept = log.visible & ~self.deletable(reader)
        if kept != log.visible:
            lost = log.visible & ~kept & ~reader.delivered
            yield State(log._replace(visible=kept), reader), Fault.LOST if lost else None
        if reader.step == 0:
            holes = reader.holes if self.variant.saves_holes else 0
            yield State(log, Reader(0, reader.cursor, holes, delivered=reader.delivered)), None

    def deletable(self, reader: Reader) -> int:
        """By what the reader has saved: its cursor, and its holes."""
        if not self.variant.deletes:
            return 0
        first_hole = reader.holes & -reader.holes
        below = first_hole - 1 if first_hole and self.variant.deletes == "below holes" else -1
        return up_to(reader.cursor) & below & ~1

    def fault_of(self, batch: int, state: State) -> Fault | None:
        log, reader = state
        if batch & ~log.visible:
            return Fault.UNREAL
        if batch & reader.delivered:
            return Fault.DOUBLED
        for related in [log.visible] if self.variant.strict else self.ids_by_key(log):
            if batch & related & up_to(newest(reader.delivered & related)):
                return Fault.OVERTAKEN
        return None

    def ids_by_key(self, log: Log) -> list[int]:
        found: dict[str, int] = {}
        for writer, drawn in zip(self.writers, log.ids, strict=True):
            for key, n in zip(writer.keys, drawn, strict=False):
                found[key] = found.get(key, 0) | 1 << n
        return [ids for key, ids in found.items() if key]

    def left_at_rest(self, state: State) -> tuple[Fault | None, int]:
        """What is wrong when nobody writes any more and the reader went round often enough."""
        log, reader = state
        if reader.step or log.held or set(log.phases) != {"ended"}:
            return None, 0
        # One round sees that nobody writes; what it delivers and forgets, a second leaves so.
        for _ in range(2 * len(self.variant.program)):
            reader, _ = self.advance(reader, log)
        missing = log.visible & ~reader.delivered
        fault = Fault.LOST if missing else Fault.WATCHED if reader.holes else None
        return fault, missing or reader.holes

    def told(self, before: State, after: State) -> str:
        """The step between these two, in words."""
        log, reader = after
        if before.log._replace(visible=0) == log._replace(visible=0) and before.log != log:
            return f"retention deletes {listed(before.log.visible & ~log.visible)}"
        if before.log != log:
            return next(text for text, moved in self.moves(before.log) if moved == log)
        if reader.step == before.reader.step:
            return "reader restarts"
        asked = self.variant.program[before.reader.step]
        seen = [f"ceiling {newest(log.visible)}"] if "ceiling" in asked else []
        seen += [f"holders {listed(log.held, 'w')}"] if "holders" in asked else []
        seen += [f"final {reader.final}"] if before.reader.step == self.judging else []
        if reader.step == 0:
            batch = self.advance(before.reader, log)[1]
            seen += [
                f"delivers {listed(batch)}; cursor {reader.cursor}, holes {listed(reader.holes)}"
            ]
        elif {"late", "new"} & set(asked):
            seen += [f"finds {listed(reader.rows)}"]
        return f"reader, {' + '.join(asked)}: {'; '.join(seen)}"

    def story(self, origin: dict[State, State | None], state: State, *then: str) -> list[str]:
        before = origin[state]
        return self.story(origin, before, self.told(before, state), *then) if before else [*then]


def search(
    writers: tuple[Writer, ...], variant: Variant, faults: frozenset[Fault] = frozenset(Fault)
) -> Result:
    """Look at every state, or as far as the first of these *faults*."""
    model = Model(writers, variant)
    origin: dict[State, State | None] = {model.start: None}
    waiting = deque([model.start])
    while waiting:
        state = waiting.popleft()
        at_rest, ids = model.left_at_rest(state)
        if at_rest in faults:
            last = f"nobody writes any more, and further rounds leave {listed(ids)} behind"
            return Result(len(origin), at_rest, model.story(origin, state, last))
        for after, fault in model.successors(state):
            if fault in faults:
                last = model.told(state, after)
                return Result(len(origin), fault, model.story(origin, state, last))
            if after not in origin:
                origin[after] = state
                waiting.append(after)
    return Result(len(origin), None, [])
