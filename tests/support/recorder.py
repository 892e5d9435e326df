"""An observer that keeps what it is told, and lets a test wait for it."""

from __future__ import annotations

from typing import TypeVar

import anyio

from sa_outbox.observe import Observation
from tests.support import PATIENCE

O_ = TypeVar("O_", bound=Observation)


class Recorder:
    """``await recorder.seen(DeliverySettled, listener="billing", times=3)``.

    Waiting costs no polling: every observation wakes those who wait.
    """

    def __init__(self) -> None:
        self.observations: list[Observation] = []
        self._told = anyio.Event()

    def __call__(self, observation: Observation) -> None:
        self.observations.append(observation)
        self._told.set()
        self._told = anyio.Event()

    def of(self, kind: type[O_], **fields: object) -> list[O_]:
        """All observations of this *kind* that have these values, in their order."""
        return [
            each
            for each in self.observations
            if isinstance(each, kind)
            and all(getattr(each, name) == value for name, value in fields.items())
        ]

    async def seen(
        self, kind: type[O_], *, times: int = 1, within: float = PATIENCE, **fields: object
    ) -> list[O_]:
        """Return once there were *times* of them, or fail *within* seconds."""
        with anyio.move_on_after(within):
            while len(found := self.of(kind, **fields)) < times:
                await self._told.wait()
            return found
        wanted = ", ".join(
            [kind.__name__, *(f"{name}={value!r}" for name, value in fields.items())]
        )
        came = "\n".join(f"  {each}" for each in self.observations[-30:])
        count = len(self.of(kind, **fields))
        raise AssertionError(f"{count} of {times} {wanted} within {within} s; the last:\n{came}")

    def forget(self) -> None:
        """Wait only for what comes from now on."""
        self.observations.clear()
