"""Which rights each kind of role needs, as data: ``sa-outbox grants`` prints them, a consumer's
verification checks them, and tests run every operation with nothing else.

A table is named by its suffix (``""`` is the log). A right on some columns lists them; None: the
whole table. Only the owner may write ``id``: ids are drawn, not chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Columns: TypeAlias = tuple[str, ...] | None
Rights: TypeAlias = Mapping[str, Columns]
"""A privilege to the columns it covers."""
Feature: TypeAlias = Literal["queues", "crons", "audit", "endpoints"]

SEQUENCE = "id_seq"
"""Listed among the tables; it is the log's sequence."""
WRITTEN = ("event_id", "event_type", "key", "tenant", "payload", "headers", "run_at", "priority")
"""The log's columns that adding an event writes."""

ADD: Rights = {"INSERT": WRITTEN}
READ: Rights = {"SELECT": None}
KEEP: Rights = {"SELECT": None, "INSERT": None, "UPDATE": None}
ALL: Rights = {**KEEP, "DELETE": None}
DISABLE: Rights = {"SELECT": None, "UPDATE": ("disabled_at", "disabled_why", "updated_at")}
_KEYS: Rights = {
    "SELECT": None,
    "INSERT": ("tenant", "event_type", "key", "event_id", "expires_at"),
    "UPDATE": ("event_id", "first_seen_at", "last_seen_at", "expires_at"),
}
_RECORD: Rights = {
    "INSERT": (
        *("recorded_at", "action", "event_id", "event_type", "listener", "tenant", "project_id"),
        *("actor_type", "actor_id", "request_id", "correlation_id", "attempt", "detail"),
    )
}
_PURGE: Rights = {"SELECT": None, "UPDATE": ("expires_at",), "DELETE": None}
# A row is locked before it is deleted, which requires UPDATE on some column. Only this one is
# harmless.
_PURGE_BY_ID: Rights = {"SELECT": None, "UPDATE": ("id",), "DELETE": None}
_RESOLVE: Rights = {
    "SELECT": None,
    "UPDATE": (
        *("resolution", "resolved_at", "resolved_by", "resolved_why"),
        *("payload", "headers", "edits", "original"),
    ),
}
_WITHOUT_SECRETS: Rights = {
    "SELECT": ("name", "url", "settings", "disabled_at", "disabled_why", "created_at", "updated_at")
}
_WITHOUT_PAYLOAD = ("id", "event_id", "event_type", "key", "tenant", "priority", "created_at")
_LETTER_WITHOUT_PAYLOAD = (
    *("id", "listener", "position", "event_id", "event_type", "tenant", "event_created_at"),
    *("attempts", "errors", "failed_at", "resolution"),
)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A role, by what its program does."""

    does: str
    tables: Mapping[str, Rights]
    audit: Mapping[str, Rights] = field(default_factory=dict)
    """Additional rights if the outbox has an audit."""
    owns: bool = False
    """It owns the tables and needs no further rights."""


KINDS: dict[str, Kind] = {
    "producer": Kind(
        does="adds events",
        tables={"": ADD, "meta": READ},
        audit={"audit": _RECORD},
    ),
    "full-producer": Kind(
        does="adds events, with idempotency keys; cancels them, asks for their status; the inbox",
        tables={
            "": {**ADD, "SELECT": _WITHOUT_PAYLOAD},
            "meta": READ,
            "idempotency_keys": _KEYS,
            "listeners": {
                "SELECT": None,
                "UPDATE": ("last_processed_id", "gaps", "revision", "updated_at"),
            },
            "deliveries": {
                "SELECT": None,
                "INSERT": (
                    *("listener", "position", "event_id", "event_type", "key", "tenant"),
                    *("priority", "state", "due_at", "range"),
                    *("cancel_requested_at", "cancel_reason", "cancel_actor"),
                ),
                "UPDATE": (
                    *("state", "cancel_requested_at", "cancel_reason", "cancel_actor"),
                    "updated_at",
                ),
            },
            "ranges": {"SELECT": ("listener", "number", "gaps", "locked_by", "lease_expires_at")},
            "dead_letters": {"SELECT": _LETTER_WITHOUT_PAYLOAD},
            "results": READ,
            "inbox": {
                "SELECT": None,
                "INSERT": ("consumer", "message_id", "expires_at"),
                "UPDATE": ("received_at", "expires_at"),
            },
        },
        audit={
            "": {"SELECT": ("headers",)},
            "dead_letters": {"SELECT": ("headers",)},
            # The status says when a listener has succeeded.
            "audit": {**_RECORD, "SELECT": ("event_id", "listener", "action", "recorded_at")},
        },
    ),
    "consumer": Kind(
        does="delivers events, and deletes rows whose time is over",
        tables={
            "": {**ADD, **READ},
            SEQUENCE: READ,
            "meta": {"SELECT": None, "UPDATE": ("system_identifier",)},
            "listeners": KEEP,
            "consumers": ALL,
            "deliveries": ALL,
            "ranges": ALL,
            "dead_letters": {**_PURGE_BY_ID, "INSERT": None},
            "idempotency_keys": {**_KEYS, "DELETE": None},
            "results": ALL,
            "inbox": ALL,
            "crons": KEEP,
            "endpoints": DISABLE,
            "audit": {**_PURGE_BY_ID, **_RECORD},
        },
    ),
    "maintenance": Kind(
        does="owns the tables: migrates them, creates and drops partitions, prunes, erases events",
        tables={},
        owns=True,
    ),
    "operator": Kind(
        does="the sa-outbox commands but migrate, prune and events erase; the whole dashboard",
        tables={
            "": {**ADD, **READ},  # a cron is run now by adding its event
            SEQUENCE: READ,
            "meta": {"SELECT": None, "UPDATE": ("epoch", "system_identifier", "database_oid")},
            "listeners": ALL,
            "consumers": READ,
            "deliveries": ALL,
            "ranges": {"SELECT": None, "UPDATE": ("updated_at",), "DELETE": None},
            "dead_letters": _RESOLVE,
            "idempotency_keys": READ,
            "results": READ,
            "inbox": READ,
            "crons": {"SELECT": None, "UPDATE": ("updated_at",)},
            "endpoints": ALL,
            "audit": {**READ, **_RECORD},
            "backlog": READ,
        },
    ),
    "dashboard": Kind(
        does="the dashboard without buttons, sa-outbox status and top; sees payloads",
        tables={
            **dict.fromkeys(
                (
                    *("", "listeners", "consumers", "deliveries", "ranges", "dead_letters"),
                    *("results", "idempotency_keys", "crons", "audit", "backlog"),
                ),
                READ,
            ),
            "endpoints": _WITHOUT_SECRETS,
        },
    ),
    "monitor": Kind(
        does="reads the view of the backlog: KEDA, Grafana; no event, no error, no payload",
        tables={"backlog": READ},
    ),
}
"""Every kind of role, by the name ``sa-outbox grants`` uses."""

CONSUMES: tuple[tuple[Feature | None, str, Rights], ...] = (
    (None, "", READ),
    (None, SEQUENCE, READ),
    (None, "listeners", KEEP),
    (None, "consumers", ALL),
    (None, "deliveries", ALL),
    (None, "dead_letters", {"SELECT": None, "INSERT": None}),
    (None, "results", KEEP),
    ("crons", "", ADD),
    ("queues", "ranges", ALL),
    ("crons", "crons", KEEP),
    ("audit", "audit", _RECORD),
    ("endpoints", "audit", _RECORD),
    ("endpoints", "endpoints", DISABLE),
)
"""Rights without which a consumer does not start: those of a feature it uses, or (None) always."""


def needed(features: Mapping[str, bool]) -> dict[str, dict[str, Columns]]:
    """The part of ``CONSUMES`` that a consumer with these *features* needs."""
    found: dict[str, dict[str, Columns]] = {}
    for feature, table, rights in CONSUMES:
        if feature is None or features.get(feature):
            found.setdefault(table, {}).update(rights)
    return found
