"""Who changes something by hand, and why; and telling the consumers of it."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sa_outbox.arguments import checked_text
from sa_outbox.sql.notify import notify

from .asking import Asking

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sa_outbox.tables import Tables

RELEASED: Final = "released"
"""Message of the NOTIFY after which consumers look who holds what, and what is due."""
MAX_WHY_BYTES: Final = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """A person, for the audit. Raises :class:`InvalidEvent` for text that can't be stored."""

    who: str
    why: str | None = None

    def __post_init__(self) -> None:
        checked_text("who", self.who)
        checked_text("why", self.why, most=MAX_WHY_BYTES)


def current_operator(why: str | None = None) -> Operator:
    """Who runs this process, by the operating system."""
    try:
        who = getpass.getuser()
    except (OSError, KeyError):  # no such user: in a container
        who = "unknown"
    return Operator(who=who, why=why)


def wake(connection: Connection, tables: Tables, channel: str | None = None) -> None:
    """Have the consumers look again when the transaction commits. Without it they find out by
    themselves, after a third of their lease's duration at the latest."""
    chosen = tables.names.notify_channel if channel is None else channel
    Asking(connection, tables).rows(notify(chosen, RELEASED))
