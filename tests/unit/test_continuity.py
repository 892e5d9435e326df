"""Whether a newest event that is not there was lost, and waiting until that is known."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any
from uuid import UUID

import anyio
import pytest

from sa_outbox.consumer.connection.connections import Steady
from sa_outbox.consumer.connection.errors import Doubted
from sa_outbox.consumer.lease.continuity import Continuity, Newest, is_gone
from sa_outbox.consumer.lease.lease import Lease
from sa_outbox.consumer.position.horizon import Horizon
from sa_outbox.errors import LeaseLost

NO_STATEMENT: Any = None


class Answering:
    """A connection that answers everything, and who lends it."""

    def __init__(self) -> None:
        self.asked = 0
        self.on_opening: Callable[[], None] = lambda: None
        self.meanwhile: Callable[[], None] = lambda: None

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Answering]:
        self.on_opening()
        yield self

    async def rows(self, *_: object, **__: object) -> list[object]:
        self.asked += 1
        self.meanwhile()
        return []


ROW = {
    "name": "billing",
    "part": 0,
    "token": 4,
    "position": 70,
    "gaps": "[]",
    "revision": 1,
    "retry_count": 0,
    "retry_position": None,
    "retry_in": None,
    "crashes": 0,
    "fingerprint": None,
    "suspects": "{}",
    "owner": "us",
}
READ = Newest(90, UUID(int=1))
OTHER = UUID(int=2)


def lease_of_an_hour() -> Lease:
    return Lease(ROW, duration=3600.0, began=monotonic())


@pytest.mark.parametrize("sure", [True, False])
@pytest.mark.parametrize("drawn", [None, 50, 90, 200])
class TestWhatBecameOfTheNewest:
    def test_it_is_there(self, drawn: int | None, sure: bool) -> None:
        assert not is_gone(READ, READ.event_id, drawn=drawn, sure=sure)

    def test_another_event_has_its_id(self, drawn: int | None, sure: bool) -> None:
        assert is_gone(READ, OTHER, drawn=drawn, sure=sure)

    def test_there_is_none(self, drawn: int | None, sure: bool) -> None:
        """Deleted, if its id is drawn and no connection has ended since."""
        expected = not sure or drawn == 50
        assert is_gone(READ, None, drawn=drawn, sure=sure) is expected


class TestDoubt:
    def test_looks_are_forgotten_and_somebody_is_asked_to_compare(self) -> None:
        horizon = Horizon()
        horizon.observe(7, set())
        told: list[str] = []
        continuity = Continuity(horizon)
        continuity.follow(lambda: told.append("doubted"))

        continuity.doubt()

        assert not continuity.is_sure
        assert horizon.latest.number == 0
        assert told == ["doubted"]

    def test_what_was_compared_before_it_does_not_end_it(self) -> None:
        continuity = Continuity(Horizon())
        continuity.doubt()
        era = continuity.era
        continuity.doubt()

        assert not continuity.confirm(era)
        assert continuity.confirm(continuity.era)
        assert continuity.is_sure

    @pytest.mark.anyio
    async def test_what_is_read_meanwhile_is_not_believed(self) -> None:
        continuity = Continuity(Horizon())
        answering = Answering()
        steady = Steady(answering, continuity)
        assert await steady.rows(NO_STATEMENT) == []

        answering.meanwhile = continuity.doubt
        with pytest.raises(Doubted):
            await steady.rows(NO_STATEMENT)
        assert answering.asked == 2
        with pytest.raises(Doubted):
            await steady.rows(NO_STATEMENT)
        assert answering.asked == 2

    @pytest.mark.anyio
    async def test_nothing_is_asked_for_it_on_a_connection_that_was_opened_after_the_others_ended(
        self,
    ) -> None:
        """A claim of what was read from the server before it must not reach the one after it."""
        continuity = Continuity(Horizon())
        answering = Answering()
        steady = Steady(answering, continuity)

        answering.on_opening = continuity.doubt
        with pytest.raises(Doubted):
            await steady.rows(NO_STATEMENT)
        assert answering.asked == 0

    @pytest.mark.anyio
    async def test_it_is_waited_for_as_long_as_somebody_compares(self) -> None:
        continuity = Continuity(Horizon())
        with continuity.compared():
            pass
        continuity.doubt()
        with pytest.raises(LeaseLost):
            await continuity.sure(lease_of_an_hour())

        with continuity.compared():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(continuity.sure, lease_of_an_hour())
                await anyio.wait_all_tasks_blocked()
                continuity.confirm(continuity.era)
