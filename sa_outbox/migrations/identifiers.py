"""The names passed to a migration: checked, then quoted.

A copy of the rule in ``settings.py``, because a frozen migration depends on nothing that changes; a
test compares the two.
"""

from __future__ import annotations

import re

from sa_outbox.errors import ConfigError

MAX_SCHEMA_BYTES = 63
MAX_PREFIX_BYTES = 63 - len("_idempotency_keys_expires_at_idx")

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_names(schema: str | None, prefix: str) -> None:
    """Refuse what is not a plain identifier: these names become part of statements."""
    if schema is not None:
        _check("schema", schema, MAX_SCHEMA_BYTES)
    _check("prefix", prefix, MAX_PREFIX_BYTES)


def qualified(schema: str | None, name: str) -> str:
    """The quoted name of a relation, with its schema if it has one."""
    return f'"{name}"' if schema is None else f'"{schema}"."{name}"'


def _check(what: str, value: object, longest: int) -> None:
    if not isinstance(value, str) or not _IDENTIFIER.fullmatch(value):
        raise ConfigError(
            f"{what} must be letters, digits and underscores, not beginning with a digit; "
            f"got {value!r}"
        )
    if len(value) > longest:
        raise ConfigError(f"{what} {value!r} is longer than {longest} bytes")
    if value.lower().startswith("pg_"):
        raise ConfigError(f"{what} {value!r}: names that begin with pg_ belong to PostgreSQL")
