"""What a consumer needs beyond the tables: rights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_outbox.errors import SchemaError
from sa_outbox.sql import catalog
from sa_outbox.tables import tables

from .inspection import quote, verify

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sa_outbox.settings import Names


def verify_consuming(connection: Connection, names: Names, **needs: bool) -> None:
    """As ``verify``, and the role may do what a consumer does. *needs*: as of
    ``catalog.missing_rights``."""
    verify(connection, names)
    role, grants = missing_grants(connection, names, **needs)
    if grants:
        found = f"role {role!r} may not consume. To mend it, as the owner of the tables:"
        raise SchemaError("\n".join([found, *grants]), problems=grants)


def missing_grants(connection: Connection, names: Names, **needs: bool) -> tuple[str, list[str]]:
    """The current role, and what the owner of the tables has to run so that it can consume."""
    role = connection.execute(catalog.this_session()).one().role
    lacking: dict[str, list[str]] = {}
    for name, right in connection.execute(catalog.missing_rights(tables(names), **needs)):
        lacking.setdefault(name, []).append(right)
    return role, [
        f"GRANT {', '.join(rights)} ON {name} TO {quote(role)};" for name, rights in lacking.items()
    ]
