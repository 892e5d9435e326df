"""Queues that take events in a way that is wrong by a hair. One of them per process.

Chosen by the name that the consumer is started with, as ``tests.crash.wrong_takers:without_holes``.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import TextClause, bindparam, text
from sqlalchemy.types import BigInteger

from sa_outbox import Outbox
from sa_outbox.consumer.progress import Progress
from sa_outbox.sql import queues
from sa_outbox.tables import Tables
from tests.crash.queue_app import with_session

_right_take = queues.take


def _forget_holes(self: Progress, ids: Sequence[int], upper: int) -> None:
    """Wrong: an id that was drawn and is not committed yet is taken for one that never comes."""


def _take_without_comparing(tables: Tables) -> TextClause:
    """Wrong: two processes that read the same events take the same events."""
    right = _right_take(tables)
    compared = "AND revision = :revision RETURNING"
    assert compared in right.text
    types = [each for name, each in right._bindparams.items() if name != "revision"]
    ignored = "AND CAST(:revision AS bigint) IS NOT NULL RETURNING"
    return text(right.text.replace(compared, ignored)).bindparams(
        *types, bindparam("revision", type_=BigInteger)
    )


def __getattr__(name: str) -> Outbox:
    """The module's attributes are made wrong when they are asked for."""
    if name == "without_holes":
        Progress._note_holes = _forget_holes  # type: ignore[method-assign]
    elif name == "without_comparing":
        queues.take = _take_without_comparing
    else:
        raise AttributeError(name)
    return with_session
