"""What interferes between the events and the log, or between the log and its consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_outbox.schema.grants import wide_grant
from sa_outbox.schema.problem import quote
from sa_outbox.sql.people import doctor as statements
from sa_outbox.sql.server import catalog

from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .case import Case


def find(case: Case) -> Iterator[Finding]:
    yield from _row_security(case)
    yield from _interceptors(case)
    yield from _wide_grants(case)


def _row_security(case: Case) -> Iterator[Finding]:
    for row in case.connection.execute(catalog.row_security(case.tables)):
        whom = "this role" if row.active else "other roles than this one"
        yield Finding(
            code="row-security",
            what=f"{row.name} has row-level security, which applies to {whom}: a consumer skips "
            "the events that it can't see, and refuses to start where it applies.",
            fix=f"ALTER TABLE {row.quoted} DISABLE ROW LEVEL SECURITY;",
            evidence={"table": row.name, "applies_to_this_role": row.active},
        )


def _interceptors(case: Case) -> Iterator[Finding]:
    for row in case.connection.execute(statements.interceptors(case.tables)):
        table, name = f"{quote(row.schema)}.{quote(row.table)}", quote(row.name)
        yield Finding(
            code="inserts-intercepted",
            what=f"The {row.kind} {row.name} on {row.table} can change or swallow events before "
            "they are in the log. One that is swallowed fails its transaction (NotWritten); one "
            "that goes elsewhere is never delivered.",
            fix=f"DROP {row.kind.upper()} {name} ON {table};",
            evidence={"kind": row.kind, "name": row.name, "table": row.table},
        )


def _wide_grants(case: Case) -> Iterator[Finding]:
    for row in case.connection.execute(statements.wide_grants(case.tables)):
        table = f"{quote(row.schema)}.{quote(row.table)}"
        if row.is_log:
            problem = wide_grant(table, row.role) if row.role is not None else None
            what = problem.what if problem else "Every role (PUBLIC) may insert into the log"
            fix = problem.fix if problem else f"REVOKE INSERT ON {table} FROM PUBLIC;"
        else:
            whom = "PUBLIC" if row.role is None else quote(row.role)
            what = (
                f"Role {row.role or 'PUBLIC'!r} may insert into {row.table} past the log: readers "
                "do not see that such an event is on its way, and may skip it"
            )
            fix = f"REVOKE INSERT ON {table} FROM {whom};"
        yield Finding(
            code="ids-can-be-chosen",
            what=f"{what}.",
            fix=fix,
            evidence={"role": row.role or "PUBLIC", "table": row.table},
        )
