"""Databases of a server, for tests: made as a copy of another one, dropped.

Neither runs in a transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy import TextClause


def copy_database(name: str, template: str) -> TextClause:
    """Make the database *name* with all that is in *template*, to which nobody may be connected.
    Locks *template* against connections."""
    return text(f"CREATE DATABASE {_quoted(name)} TEMPLATE {_quoted(template)}")


def drop_database(name: str) -> TextClause:
    """Drop the database *name*, if it exists, whoever is connected to it."""
    return text(f"DROP DATABASE IF EXISTS {_quoted(name)} WITH (FORCE)")


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""').replace(":", "\\:")
    return f'"{doubled}"'
