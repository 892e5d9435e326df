"""Whether a newest event that is not there was lost, and waiting until that is known."""

from __future__ import annotations

from time import monotonic
from uuid import UUID

import anyio
import pytest

from sa_outbox.consumer.connection.connections import Steady
from sa_outbox.consumer.connection.errors import Doubted
from sa_outbox.consumer.lease.continuity import Continuity, Newest, is_gone
from sa_outbox.consumer.lease.lease import Lease
from sa_outbox.consumer.position.horizon import Horizon
from sa_outbox.errors import LeaseLost

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

        class Answering:
            async def rows(self, *_: object, **__: object) -> list[object]:
                await anyio.lowlevel.checkpoint()
                return []

        steady = Steady(Answering(), continuity)
        assert await steady.rows(None) == []  # type: ignore[arg-type]  # no statement is needed
        continuity.doubt()
        with pytest.raises(Doubted):
            await steady.rows(None)  # type: ignore[arg-type]  # nobody looks at it

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
