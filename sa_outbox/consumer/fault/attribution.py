"""What an error says about an attempt in a session: who caused it. Pure."""

from __future__ import annotations

from typing import Literal, TypeAlias

from sqlalchemy.exc import DBAPIError

from ..connection.errors import is_transient, is_unreachable, sqlstate_of

Why: TypeAlias = Literal["away", "lost", "passing", "ours"]
Meaning: TypeAlias = Literal["unknown", "ours", "passing", "handler"]

_CUT_SHORT = ("57014", "55P03")
"""Ended by a limit or an operator: a timeout, a cancel."""
_ABORTED = "25P02"
"""An earlier statement of the transaction failed, and its error was ignored."""


class Again(Exception):
    """The attempt had no outcome of its own: retry it.

    *why*: the database is ``away``, or in trouble; the session was ``lost`` although the server
    stayed up; it is ``passing``, such as a deadlock; or ``ours``, the settling statements, were
    refused.
    """

    def __init__(self, cause: BaseException, why: Why) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.why: Why = why


class Alone(Exception):
    """The attempt failed, perhaps because of others in its transaction: attempt it alone."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Lost(Exception):
    """The session's connection was lost, after it was last known to be alive at *alive_at*.

    When it was lost exactly nobody knows: it is noticed with the next statement, perhaps long after
    an outage that has ended since.
    """

    def __init__(self, cause: BaseException, alive_at: float) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.alive_at = alive_at


class Refused(Exception):
    """One of our settling statements was refused, not the COMMIT. Its cause is the reason."""


def is_dead(error: BaseException) -> bool:
    """True if *error* ended its connection, as far as SQLAlchemy knows."""
    return isinstance(error, DBAPIError) and error.connection_invalidated


def meaning_of(error: BaseException, cause: BaseException, *, is_lost: bool) -> Meaning:
    """What it means that settling in a session raised *error*, because of *cause*.

    ``unknown``: it may be committed. ``ours``: our statements were refused. ``passing``: the COMMIT
    was refused and may succeed next time. ``handler``: what the handler did can't be committed.
    """
    if is_lost or is_unreachable(cause):
        return "unknown"
    if isinstance(error, Refused) or sqlstate_of(cause) in _CUT_SHORT:
        # Nobody can settle on top of what the handler left behind.
        is_left = not isinstance(cause, DBAPIError) or sqlstate_of(cause) == _ABORTED
        return "handler" if is_left else "ours"
    return "passing" if is_transient(cause) else "handler"
