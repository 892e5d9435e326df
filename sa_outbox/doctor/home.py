"""Is this the database its tables were created in, or a copy?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_outbox.schema.identity import adopt_command, find_home
from sa_outbox.schema.problem import quote

from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .case import Case


def find(case: Case) -> Iterator[Finding]:
    home = find_home(case.connection, case.names)
    evidence = {"was": str(home.stored), "is": str(home.present), "epoch": home.epoch}
    if home.is_copy:
        yield Finding(
            code="copy",
            what=f"Database {home.database!r} was restored or cloned from another one: relays and "
            "listeners declared external=True wait, all others run.",
            fix=adopt_command(case.names),
            evidence=evidence,
        )
    if home.is_unreadable:
        yield Finding(
            code="identity-unknown",
            what=f"Role {home.role!r} may not query which server this is: a copy of the database "
            "is recognised by its oid alone, which another server may also have assigned.",
            fix=f"GRANT EXECUTE ON FUNCTION pg_catalog.pg_control_system() TO {quote(home.role)};",
            evidence=evidence,
        )
