"""Every finding's code and severity. Codes are stable: scripts and alerts refer to them."""

from __future__ import annotations

from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["error", "warning", "info"]
"""error: events are not written or not delivered, or may be lost. warning: something waits, or will
go wrong. info: worth knowing; there may be nothing to fix."""

CODES: dict[str, Severity] = {
    # The tables
    "no-tables": "error",
    "no-version": "error",
    "tables-too-old": "error",
    "tables-too-new": "error",
    "table-missing": "error",
    "view-missing": "error",
    "table-shadowed": "error",
    "table-foreign": "error",
    "encoding": "error",
    "column-missing": "error",
    "id-not-always": "error",
    "sequence-cache": "error",
    "sequence-step": "error",
    "sequence-renamed": "error",
    "sequence-behind": "error",
    "cursor-ahead": "error",
    "no-default-partition": "error",
    "no-right": "error",
    "row-security": "error",
    "inserts-intercepted": "warning",
    "ids-can-be-chosen": "warning",
    "standby": "error",
    "read-only": "error",
    # A copy
    "copy": "warning",
    "identity-unknown": "info",
    # The log and its storage
    "partitions-run-out": "warning",
    "events-in-rest": "warning",
    "autovacuum-off": "warning",
    "storage-changed": "info",
    "bloat": "warning",
    # Listeners and consumers
    "listener-orphaned": "warning",
    "listener-unattended": "warning",
    "listener-paused": "warning",
    "dead-letters": "warning",
    "no-consumer": "error",
    "lease-expired": "warning",
    # The horizon
    "horizon-held": "warning",
    "horizon-prepared": "warning",
    # The server, and the way to it
    "server-too-old": "error",
    "fsync-off": "warning",
    "synchronous-commit-off": "warning",
    "idle-in-transaction": "info",
    "connections-used-up": "warning",
    "clock-differs": "warning",
    "listen-unheard": "warning",
    "listen-refused": "warning",
    "tls-unverified": "warning",
    # Leftovers
    "keys-expired": "warning",
    "event-gone": "warning",
    # The examination itself
    "not-examined": "info",
}
