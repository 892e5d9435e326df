"""One event through a running consumer, from ``session.add_event`` to its committed outcome.

The consumer has handled other events before. It goes on being traced until everybody waits again:
what is done beside the event (asking for the horizon) would else be among the steps or not, as
chance has it. What happens by the clock is out of the way: every interval is a day, and
``tracer.BY_THE_CLOCK`` has the rest.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import anyio
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import Outbox
from sa_outbox.consumer import Consumer, ConsumerSettings
from sa_outbox.observe import DeliverySettled, Listening, Observation
from sa_outbox.schema import migrate

from .scenes import EVENT_TYPE
from .tracer import Trace

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import async_sessionmaker

    from sa_outbox import AsyncOutboxSession

    from .scenes import Scene
    from .tracer import Step, Tracer

EARLIER = 3
"""Events before the first that is traced: connections are made and statements prepared by then."""
RUNS = 3
QUIET_SECONDS = 0.3
"""Without any call in the package: everybody waits."""
PATIENCE_SECONDS = 100.0
"""For one walk, on a machine that has much else to do."""

_A_DAY = timedelta(days=1)
SETTINGS = ConsumerSettings(
    lease_duration=_A_DAY,
    poll_interval=_A_DAY,
    probe_interval=_A_DAY,
    verify_interval=_A_DAY,
    measure_interval=_A_DAY,
    maintenance_interval=_A_DAY,
    blocked_after=_A_DAY,
)


@dataclass(frozen=True)
class Walk:
    """One walk, traced a few times: what varies by chance shows."""

    scene: Scene
    traces: tuple[Trace, ...]

    @property
    def always(self) -> frozenset[Step]:
        return frozenset.intersection(*(frozenset(trace.calls) for trace in self.traces))

    @property
    def sometimes(self) -> frozenset[Step]:
        return frozenset(step for trace in self.traces for step in trace.calls) - self.always

    @property
    def typical(self) -> Trace:
        """The one in the middle."""
        by_length = sorted(self.traces, key=lambda trace: trace.committed)
        return by_length[len(by_length) // 2]


class Walker:
    """An observer that knows when the consumer listens, and when an outcome was committed."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self.listening = anyio.Event()
        self.done = anyio.Event()
        self.committed = 0

    def __call__(self, observation: Observation) -> None:
        if isinstance(observation, Listening):
            self.listening.set()
        elif isinstance(observation, DeliverySettled) and observation.outcome == "done":
            self.committed = len(self._tracer.calls)
            self.done.set()

    async def go(self, sessions: async_sessionmaker[AsyncOutboxSession]) -> Trace:
        self.done = anyio.Event()
        gc.collect()
        self._tracer.calls.clear()
        async with sessions.begin() as session:
            session.add_event(EVENT_TYPE, {"to": "the other side"}, key="road")
        await self.done.wait()
        await self.silence()
        return Trace(tuple(self._tracer.calls), self.committed)

    async def silence(self) -> None:
        before = -1
        while before != len(self._tracer.calls):
            before = len(self._tracer.calls)
            await anyio.sleep(QUIET_SECONDS)


async def walk(scene: Scene, url: str, tracer: Tracer) -> Walk:
    """On the database at that URL, in tables of its own."""
    outbox = Outbox(prefix=f"walk_{scene.name.replace('-', '_')}")
    scene.listen(outbox)
    walker = Walker(tracer)
    engine = create_async_engine(url)
    gc.disable()  # what is collected meanwhile may have finalizers of ours
    try:
        async with engine.begin() as connection:
            await connection.run_sync(migrate, outbox.settings.names)
        consumer = Consumer(outbox, engine, settings=SETTINGS, observers=[walker])
        sessions = outbox.async_sessionmaker(engine)
        with anyio.fail_after(PATIENCE_SECONDS):
            async with anyio.create_task_group() as tasks:
                await tasks.start(consumer.run)
                await walker.listening.wait()
                await walker.silence()
                traces = [await walker.go(sessions) for _ in range(EARLIER + RUNS)]
                consumer.stop()
        return Walk(scene, tuple(traces[EARLIER:]))
    finally:
        gc.enable()
        await engine.dispose()
