"""A queue that takes events in a way that is wrong by a hair.

Chosen by the name that the consumer is started with: ``tests.crash.wrong_takers:without_holes``.
"""

from __future__ import annotations

from collections.abc import Sequence

from sa_outbox import Outbox
from sa_outbox.consumer.position.progress import Progress
from tests.crash.queue_app import with_session


def _forget_holes(self: Progress, ids: Sequence[int], upper: int) -> None:
    """Wrong: an id that was drawn and is not committed yet is taken for one that never comes."""


def __getattr__(name: str) -> Outbox:
    """Made wrong when it is asked for."""
    if name != "without_holes":
        raise AttributeError(name)
    Progress._note_holes = _forget_holes  # type: ignore[method-assign]
    return with_session
