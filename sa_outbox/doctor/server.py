"""The server: its version, its settings, its connections, its clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_outbox.schema.problem import quote
from sa_outbox.sql.people import doctor as statements

from .case import in_words
from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .case import Case

OLDEST = 140_000
_SETTINGS = (
    "fsync", "full_page_writes", "synchronous_commit", "idle_in_transaction_session_timeout",
    "autovacuum", "max_connections", "superuser_reserved_connections", "reserved_connections",
)  # fmt: skip


def find(case: Case) -> Iterator[Finding]:
    before = case.now()
    server = case.connection.execute(statements.server()).one()
    after = case.now()
    rows = case.connection.execute(statements.settings(_SETTINGS))
    settings = {row.name: row.setting for row in rows}
    if server.version < OLDEST:
        yield Finding(
            code="server-too-old",
            what=f"The server is PostgreSQL {server.version_name}; sa_outbox needs 14 or newer.",
            fix="Upgrade the server.",
            evidence={"version": server.version_name},
        )
    yield from _durability(settings)
    yield from _timeouts(settings, server.database)
    yield from _connections(case, settings, server.connections)
    # The answer was produced at some moment between the two.
    off = max(before - server.now, server.now - after)
    if off > case.thresholds.clock:
        yield Finding(
            code="clock-differs",
            what=f"The clock of this machine and the database's differ by {in_words(off)}. Leases "
            "and schedules go by the database's alone; times in logs, and the ids that programs "
            "here give their events, do not fit.",
            fix="Synchronise both with a time server (NTP).",
            evidence={"seconds": round(off, 1)},
        )


def _durability(settings: Mapping[str, str]) -> Iterator[Finding]:
    unsafe = [name for name in ("fsync", "full_page_writes") if settings.get(name) == "off"]
    if unsafe:
        yield Finding(
            code="fsync-off",
            what="The server does not write safely: when its machine crashes, the whole database "
            "may be lost. For tests only.",
            fix="\n".join(f"ALTER SYSTEM SET {name} = on;" for name in unsafe)
            + "\nSELECT pg_reload_conf();",
            evidence=dict.fromkeys(unsafe, "off"),
        )
    if settings.get("synchronous_commit") == "off":
        yield Finding(
            code="synchronous-commit-off",
            what="A commit does not wait for the disk: a crash of the server loses the last "
            "moments, data, events and cursors together. What handlers did outside for those "
            "events stays done.",
            fix="Remove it where it is set (ALTER SYSTEM, ALTER DATABASE, ALTER ROLE, or the "
            "connection): synchronous_commit = on",
            evidence={"synchronous_commit": "off"},
        )


def _timeouts(settings: Mapping[str, str], database: str) -> Iterator[Finding]:
    if settings.get("idle_in_transaction_session_timeout") == "0":
        yield Finding(
            code="idle-in-transaction",
            what="A program that forgets to end a transaction is never disconnected; if it has "
            "written events, it holds the horizon forever.",
            fix=f"ALTER DATABASE {quote(database)} SET idle_in_transaction_session_timeout = "
            "'5min';",
            evidence={"idle_in_transaction_session_timeout": 0},
        )
    if settings.get("autovacuum") == "off":
        yield Finding(
            code="autovacuum-off",
            what="Autovacuum is switched off on the whole server: dead rows stay, and every table "
            "that is written gets slower.",
            fix="ALTER SYSTEM SET autovacuum = on;\nSELECT pg_reload_conf();",
            evidence={"autovacuum": "off"},
        )


def _connections(case: Case, settings: Mapping[str, str], used: int) -> Iterator[Finding]:
    reserved = ("superuser_reserved_connections", "reserved_connections")
    most = int(settings["max_connections"]) - sum(int(settings.get(name, 0)) for name in reserved)
    if used > most * case.thresholds.connections:
        yield Finding(
            code="connections-used-up",
            what=f"{used} of the {most} connections that ordinary roles can have are in use. A "
            "consumer needs up to 7 of its own, and one for each handler that has a session.",
            fix="Raise max_connections, lower the pools of the programs, or put a pooler in "
            "front of the producers.",
            evidence={"used": used, "most": most},
        )
