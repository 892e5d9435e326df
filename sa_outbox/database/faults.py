"""How to fix what makes the database refuse a statement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy.exc import DBAPIError

    from .names import Names


def raise_if_fixable(error: DBAPIError, names: Names, rights: Mapping[str, str]) -> None:
    """Raise :class:`SchemaError` with instructions, if an operator can fix the fault."""
    advice = _advice(code_of(error), names, rights)
    if advice is not None:
        raise SchemaError(f"{first_line(error)}. {advice}") from error


def _advice(code: str, names: Names, rights: Mapping[str, str]) -> str | None:
    """Instructions for faults that an operator can fix; None for all others."""
    if code in ("42P01", "3F000", "42703"):  # no such table, schema, column
        command = " ".join(["sa-outbox migrate --database-url URL", *names.options])
        return f"The outbox's tables are missing or outdated. Create or update them: {command}"
    if code == "42501":
        home = "" if names.schema is None else f"{names.schema}."
        usage = "" if names.schema is None else f"GRANT USAGE ON SCHEMA {names.schema} TO role; "
        grants = [
            f"GRANT {right} ON {home}{names.table(suffix)} TO role"
            for suffix, right in rights.items()
        ]
        return f"This role may not write here. Grant it: {usage}{'; '.join(grants)}"
    if code == "25006":
        return "The connection is read-only, or connected to a standby: writing needs the primary"
    return None


def code_of(error: DBAPIError) -> str:
    return getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None) or ""


def first_line(error: DBAPIError) -> str:
    return str(error.orig).partition("\n")[0].rstrip(".")
