"""The tables as such: what ``sa-outbox verify`` finds, and the rights of a consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_outbox import schema

from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .case import Case


def find(case: Case) -> Iterator[Finding]:
    problems = schema.problems(case.connection, case.names)
    for each in problems:
        yield Finding(code=each.code, what=f"{each.what}.", fix=each.fix)
    if problems:
        return
    role, grants = schema.missing_grants(case.connection, case.names)
    if grants:
        yield Finding(
            code="no-right",
            what=f"Role {role!r} may not consume: a consumer with this role does not start.",
            fix="\n".join(grants),
            evidence={"role": role},
        )
