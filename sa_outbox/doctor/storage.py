"""Settings of the small tables that are written constantly, and how large they have become."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_outbox.schema.problem import quote
from sa_outbox.sql.people import doctor as statements
from sa_outbox.sql.server.names import quoted

from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Row, Table

    from .case import Case

_OFF = ("false", "off", "0", "no")
A_ROW = 16_384
"""Bytes that a listener's row may reasonably take, including dead versions and the free half of a
page."""


def find(case: Case) -> Iterator[Finding]:
    ours = case.tables
    hot = {
        each.name: each for each in (ours.listeners, ours.consumers, ours.deliveries, ours.ranges)
    }
    for row in case.connection.execute(statements.storage(hot.values())):
        yield from _options(hot[row.name], dict(each.split("=", 1) for each in row.options))
        if row.name == ours.listeners.name:
            yield from _bloat(case, row)
    for row in case.connection.execute(statements.unvacuumed_partitions(ours)):
        yield _unvacuumed(f"{quote(row.schema)}.{quote(row.name)}")


def _options(table: Table, found: Mapping[str, str]) -> Iterator[Finding]:
    if found.get("autovacuum_enabled", "on").lower() in _OFF:
        yield _unvacuumed(quoted(table))
    declared = table.dialect_options["postgresql"]["with"] or {}
    differ = {
        name: found.get(name)
        for name, value in declared.items()
        if name not in found or float(found[name]) != float(value)
    }
    if differ:
        settings = ", ".join(f"{name} = {declared[name]}" for name in differ)
        yield Finding(
            code="storage-changed",
            what=f"{table.name} has different storage settings than the migration gave it. "
            "It is written constantly, and becomes slow when dead rows stay.",
            fix=f"ALTER TABLE {quoted(table)} SET ({settings});",
            evidence={name: value or "not set" for name, value in differ.items()},
        )


def _unvacuumed(table: str) -> Finding:
    return Finding(
        code="autovacuum-off",
        what=f"Autovacuum is switched off for {table}: dead rows stay, and reading gets slower.",
        fix=f"ALTER TABLE {table} RESET (autovacuum_enabled);",
        evidence={"table": table},
    )


def _bloat(case: Case, row: Row[str, list[str], int, int]) -> Iterator[Finding]:
    rows = case.connection.scalar(statements.rows_of(case.tables.listeners)) or 0
    size, dead = row.bytes, row.dead
    if size > case.thresholds.bytes + A_ROW * rows:
        table = quoted(case.tables.listeners)
        yield Finding(
            code="bloat",
            what=f"{case.tables.listeners.name} has {rows} rows and {size} bytes: dead rows could "
            "not be removed for a while, usually because of a transaction that was open for long. "
            "Every write of a cursor is slower for it.",
            fix=f"VACUUM FULL {table};",
            evidence={"rows": rows, "bytes": size, "dead_rows": dead},
        )
