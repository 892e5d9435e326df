"""What a consumer needs beyond the tables: rights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_outbox.database.rights import needed
from sa_outbox.database.tables import tables
from sa_outbox.errors import SchemaError
from sa_outbox.sql.server import catalog

from .grants import grant
from .inspection import problems
from .problem import Problem, quote, refuse

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sa_outbox.settings import Names


def verify_consuming(connection: Connection, names: Names, **needs: bool) -> None:
    """Run ``verify``, and check that the role may do what a consumer does. *needs*: features, as in
    ``rights.CONSUMES``.

    Ids above the sequence are no reason to stop: the horizon ignores them, and someone who may
    choose an id must not be able to stop every consumer with it.
    """
    found = [each for each in problems(connection, names) if each.code != "sequence-behind"]
    refuse([*found, *hidden_rows(connection, names)])
    role, grants = missing_grants(connection, names, **needs)
    if grants:
        intro = f"role {role!r} may not consume. To fix it, as the owner of the tables:"
        raise SchemaError("\n".join([intro, *grants]), problems=grants)


def hidden_rows(connection: Connection, names: Names) -> list[Problem]:
    """Tables in which row-level security may hide rows from this role: a consumer would silently
    skip events that it can't see."""
    role = connection.execute(catalog.this_session()).one().role
    return [
        Problem(
            "row-security",
            f"Row-level security on {row.name} may hide rows from role {role!r}: a consumer would "
            "skip the events that it can't see",
            f"ALTER TABLE {row.quoted} DISABLE ROW LEVEL SECURITY; or, for this role alone: "
            f"ALTER ROLE {quote(role)} BYPASSRLS",
        )
        for row in connection.execute(catalog.row_security(tables(names)))
        if row.active
    ]


def missing_grants(connection: Connection, names: Names, **needs: bool) -> tuple[str, list[str]]:
    """The current role, and what the owner of the tables has to run so that it can consume."""
    role = connection.execute(catalog.this_session()).one().role
    lacking: dict[str, dict[str, tuple[str, ...]]] = {}
    for row in connection.execute(catalog.missing_rights(tables(names), needed(needs))):
        columns = () if row.col is None else (row.col,)
        rights = lacking.setdefault(row.name, {})
        rights[row.lacking] = (*rights.get(row.lacking, ()), *columns)
    return role, [grant(name, rights, quote(role)) for name, rights in lacking.items()]
