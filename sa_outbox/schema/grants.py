"""The statements that grant a role its rights, from ``rights.KINDS``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_outbox.database.rights import ADD, KINDS
from sa_outbox.sql.server import catalog
from sa_outbox.sql.server.names import table_name

from .apply import home
from .problem import Problem, quote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from sa_outbox.database.names import Names
    from sa_outbox.database.rights import Columns, Rights


def grant(name: str, rights: Rights, role: str) -> str:
    """One statement; *name* and *role* are quoted."""
    listed = ", ".join(
        f"{right} ({', '.join(columns)})" if columns else right for right, columns in rights.items()
    )
    return f"GRANT {listed} ON {name} TO {role};"


def grants(names: Names, kind: str, role: str, *, audit: bool = False) -> Iterator[str]:
    """The statements for a *role* of this *kind*, for the owner of the tables to run."""
    chosen, whom = KINDS[kind], quote(role)
    where = quote(names.schema or "public")
    yield f"-- {kind}: {chosen.does}"
    if chosen.owns:
        yield f"GRANT USAGE, CREATE ON SCHEMA {where} TO {whom};"
        yield catalog.own_everything(names, role)
        return
    yield f"GRANT USAGE ON SCHEMA {where} TO {whom};"
    rights = dict(chosen.tables)
    for suffix, more in chosen.audit.items() if audit else ():
        rights[suffix] = _both(rights.get(suffix, {}), more)
    for suffix, given in rights.items():
        yield grant(table_name(names, suffix), given, whom)


def warnings(connection: Connection, names: Names) -> list[Problem]:
    """What works but should not: the current role may choose the ids of its events."""
    schema, log = home(connection, names) or "", names.table()
    row = connection.execute(catalog.relations(schema, [log])).first()
    if row is None or row.is_owner or "id" not in row.insertable:
        return []
    role = connection.execute(catalog.this_session()).one().role
    return [wide_grant(f"{quote(schema)}.{quote(log)}", role)]


def wide_grant(log: str, role: str) -> Problem:
    return Problem(
        "ids-can-be-chosen",
        f"Role {role!r} may choose the ids of its events (INSERT on all columns): such an event is "
        "not delivered before the sequence reaches its id, and then another insert fails",
        f"REVOKE INSERT ON {log} FROM {quote(role)};\n{grant(log, ADD, quote(role))}",
    )


def _both(first: Rights, second: Rights) -> dict[str, Columns]:
    joined = dict(first)
    for right, columns in second.items():
        before = joined.get(right, ())
        if before is None or columns is None:
            joined[right] = None
        else:
            joined[right] = tuple(dict.fromkeys((*before, *columns)))
    return joined
