"""Who changes something by hand, and why; and notifying the consumers of it."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sa_outbox.event.validation import checked_text
from sa_outbox.sql.server.notify import RELEASED, notify

from .statement_runner import OperatorRunner

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables

MAX_WHY_BYTES: Final = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """An operator, for the audit. Raises :class:`InvalidEvent` for text that can't be stored."""

    who: str
    why: str | None = None

    def __post_init__(self) -> None:
        checked_text("who", self.who)
        checked_text("why", self.why, most=MAX_WHY_BYTES)


def current_operator(why: str | None = None) -> Operator:
    """The operating system user that runs this process."""
    try:
        who = getpass.getuser()
    except (OSError, KeyError):  # no such user: in a container
        who = "unknown"
    return Operator(who=who, why=why)


def wake(connection: Connection, tables: Tables, channel: str | None = None) -> None:
    """Wake the consumers when the transaction commits. Without it they notice by themselves, within
    a third of their lease duration."""
    chosen = tables.names.notify_channel if channel is None else channel
    OperatorRunner(connection, tables).rows(notify(chosen, RELEASED))
