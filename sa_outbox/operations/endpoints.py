"""Webhook endpoints in the database: add, list, change, move, rotate, reseal, disable, enable,
remove.

Each is a listener, ``webhook:NAME``, with its own cursor, retries and dead letters. Consumers whose
program calls ``outbox.webhooks()`` serve all that are not disabled, and notice changes by
themselves.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from sa_outbox.errors import ConfigError, EndpointNotFound
from sa_outbox.operations import sealing
from sa_outbox.policy.checks import known_instead
from sa_outbox.sql.listener import endpoints as sql
from sa_outbox.sql.people import listener_changes

from .endpoint import PREFIX, Endpoint, endpoint_of, sealed_again
from .operator import wake
from .statement_runner import OperatorRunner

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables

    from .audit import Action
    from .operator import Operator


def list_endpoints(connection: Connection, tables: Tables) -> tuple[list[Endpoint], list[str]]:
    """All of them, and the errors of those that can't be read because they were written by hand."""
    found: list[Endpoint] = []
    wrong: list[str] = []
    for row in OperatorRunner(connection, tables).rows(sql.all_endpoints(tables)):
        try:
            found.append(endpoint_of(row))
        except ConfigError as error:
            wrong.append(str(error))
    return found, wrong


def served_endpoints(connection: Connection, tables: Tables) -> dict[str, bool]:
    """Listeners of all endpoints, and whether these are to be served. Reads nothing else."""
    rows = OperatorRunner(connection, tables).rows(sql.all_endpoints(tables))
    return {PREFIX + row["name"]: row["disabled_at"] is None for row in rows}


def find_endpoint(connection: Connection, tables: Tables, name: str) -> Endpoint:
    """Locked until the transaction ends. Raises :class:`EndpointNotFound`, and
    :class:`ConfigError` for one that can't be read."""
    rows = OperatorRunner(connection, tables).rows(sql.one_endpoint(tables), name=name)
    if not rows:
        raise _unknown(connection, tables, name)
    return endpoint_of(rows[0])


def add_endpoint(
    connection: Connection,
    tables: Tables,
    endpoint: Endpoint,
    operator: Operator,
    *,
    channel: str | None = None,
) -> None:
    """Add an endpoint. Raises :class:`ConfigError` if the name is taken, and for secrets that are
    not stored properly: sealed for this endpoint, or the name of a variable."""
    for stored, binding in endpoint.stored:
        sealing.check(stored, binding)
    rows = OperatorRunner(connection, tables).rows(
        sql.add(tables),
        name=endpoint.name,
        url=endpoint.url,
        settings=json.dumps(asdict(endpoint.delivering)),
        secrets=json.dumps(endpoint.secrets),
        bearer=endpoint.bearer,
    )
    if not rows:
        raise ConfigError(f"there already is an endpoint {endpoint.name!r}: nothing was changed")
    _record(connection, tables, endpoint.name, "endpoint added", operator, channel)


def move_endpoint(
    connection: Connection,
    tables: Tables,
    name: str,
    url: str,
    operator: Operator,
    *,
    channel: str | None = None,
) -> None:
    """Send to *url* from now on. Sealed secrets are resealed for the new URL. Raises
    :class:`EndpointNotFound`, and :class:`ConfigError` if a secret can't be opened."""
    before = find_endpoint(connection, tables, name)
    _put(connection, tables, sealed_again(before, replace(before, url=url)))
    _record(connection, tables, name, "endpoint moved", operator, channel)


def change_endpoint(
    connection: Connection,
    tables: Tables,
    name: str,
    operator: Operator,
    *,
    channel: str | None = None,
    **changes: Any,
) -> dict[str, tuple[Any, Any]]:
    """Change which events it gets and how: fields of ``Delivering``, but not its order. Its cursor,
    deliveries and secrets stay. Returns what differs now, before and after.

    Raises :class:`EndpointNotFound`, and :class:`ConfigError` for values that are not possible.
    """
    if "order" in changes:
        raise ConfigError(
            "the order of an endpoint can't be changed: deliveries that wait rely on it"
        )
    known = find_endpoint(connection, tables, name)
    before, after = known.delivering, replace(known.delivering, **changes)
    changed = {
        each: (getattr(before, each), getattr(after, each))
        for each in changes
        if getattr(before, each) != getattr(after, each)
    }
    if changed:
        settings = json.dumps(asdict(after))
        OperatorRunner(connection, tables).rows(sql.configure(tables), name=name, settings=settings)
        _record(connection, tables, name, "endpoint changed", operator, channel, changed=changed)
    return changed


def rotate_endpoint(
    connection: Connection,
    tables: Tables,
    name: str,
    operator: Operator,
    *,
    secret: str | None = None,
    variable: str | None = None,
    channel: str | None = None,
) -> int:
    """Sign with *secret*, or with the value of the consumers' environment *variable*, and with the
    previous secret too; without either, with the newest alone. Returns how many are active now.
    Raises :class:`EndpointNotFound`, and :class:`ConfigError` if a secret can't be opened or
    sealed."""
    known = find_endpoint(connection, tables, name)
    newest = known.secrets[:1]
    if secret is not None or variable is not None:
        new, before = known.binding("secret"), known.binding("previous secret")
        stored = (
            sealing.named(variable) if variable is not None else sealing.seal(secret or "", new)
        )
        kept = (stored, *(sealing.moved(each, new, before) for each in newest))
    else:
        kept = newest
    _put(connection, tables, replace(known, secrets=kept))
    _record(connection, tables, name, "endpoint rotated", operator, channel)
    return len(kept)


@dataclass(frozen=True, slots=True)
class Resealed:
    """What became of the secrets of every endpoint."""

    names: list[str]
    """Endpoints whose secrets were resealed with the first key."""
    failed: list[tuple[str, str]]
    """Endpoints with a secret that can't be opened, and the reason."""


def reseal_endpoints(
    connection: Connection, tables: Tables, operator: Operator, *, channel: str | None = None
) -> Resealed:
    """Reseal every secret with the first key of ``SA_OUTBOX_SECRET_KEY``, so that older keys can be
    removed from it. A secret that can't be opened is left as it is and does not stop the others."""
    done = Resealed([], [])
    for row in OperatorRunner(connection, tables).rows(sql.all_endpoints(tables)):
        name = row["name"]
        try:
            known = find_endpoint(connection, tables, name)
            if all(sealing.is_current(each) for each, _ in known.stored):
                continue
            _put(connection, tables, sealed_again(known, known))
        except EndpointNotFound:
            continue  # removed meanwhile
        except ConfigError as error:
            done.failed.append((name, str(error)))
            continue
        _record(connection, tables, name, "endpoint resealed", operator, channel)
        done.names.append(name)
    return done


def disable_endpoint(
    connection: Connection,
    tables: Tables,
    name: str,
    operator: Operator,
    *,
    channel: str | None = None,
) -> bool:
    """Send nothing to it until it is enabled; its cursor stays in place. False: it was already
    disabled. Raises :class:`EndpointNotFound`."""
    return _change(
        connection,
        tables,
        name,
        sql.disable,
        "endpoint disabled",
        operator,
        channel,
        why=operator.why,
    )


def enable_endpoint(
    connection: Connection,
    tables: Tables,
    name: str,
    operator: Operator,
    *,
    channel: str | None = None,
) -> bool:
    """Continue where it left off. False: it was not disabled. Raises :class:`EndpointNotFound`."""
    return _change(connection, tables, name, sql.enable, "endpoint enabled", operator, channel)


def remove_endpoint(
    connection: Connection,
    tables: Tables,
    name: str,
    operator: Operator,
    *,
    channel: str | None = None,
) -> None:
    """Remove it. Its listener stays until it is retired: it has a cursor and maybe dead letters.
    Raises :class:`EndpointNotFound`."""
    _change(connection, tables, name, sql.remove, "endpoint removed", operator, channel)


def _put(connection: Connection, tables: Tables, endpoint: Endpoint) -> None:
    OperatorRunner(connection, tables).rows(
        sql.put(tables),
        name=endpoint.name,
        url=endpoint.url,
        secrets=json.dumps(endpoint.secrets),
        bearer=endpoint.bearer,
    )


def _unknown(connection: Connection, tables: Tables, name: str) -> EndpointNotFound:
    rows = OperatorRunner(connection, tables).rows(sql.all_endpoints(tables))
    known = known_instead(name, [row["name"] for row in rows])
    return EndpointNotFound(f"there is no endpoint {name!r}{known}")


def _change(
    connection: Connection,
    tables: Tables,
    name: str,
    statement: Callable[[Tables], Any],
    action: Action,
    operator: Operator,
    channel: str | None,
    **values: object,
) -> bool:
    if not OperatorRunner(connection, tables).rows(sql.one_endpoint(tables), name=name):
        raise _unknown(connection, tables, name)
    if not OperatorRunner(connection, tables).rows(statement(tables), name=name, **values):
        return False
    _record(connection, tables, name, action, operator, channel)
    return True


def _record(
    connection: Connection,
    tables: Tables,
    name: str,
    action: Action,
    operator: Operator,
    channel: str | None,
    **detail: object,
) -> None:
    OperatorRunner(connection, tables).rows(
        listener_changes.record(tables),
        name=PREFIX + name,
        action=action,
        who=operator.who,
        detail=json.dumps({"why": operator.why, **detail}),
        event_id=None,
        event_type=None,
    )
    wake(connection, tables, channel)
