"""Whose rows a transaction may see."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, func, select, true
from sqlalchemy.types import Text

if TYPE_CHECKING:
    from sqlalchemy import Select


@cache
def set_tenant(setting: str) -> Select[Any]:
    """Set *setting* to :tenant until the transaction ends, for row-level security.

    Does what ``SET LOCAL`` does, with parameters. Nothing of it is left for the next transaction on
    the connection, not even behind a pooler in transaction mode. One row: the value. Locks no rows,
    reads no table.
    """
    return select(func.set_config(setting, bindparam("tenant", type_=Text), true()))


@cache
def current_tenant(setting: str) -> Select[Any]:
    """What *setting* is at the moment; empty if nobody has set it. One row. Locks no rows, reads no
    table."""
    return select(func.coalesce(func.current_setting(setting, true()), ""))
