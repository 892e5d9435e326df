"""Where the tables are and what they are called: all that a read-only command needs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import ConfigError

MAX_IDENTIFIER_BYTES = 63
"""PostgreSQL silently truncates longer names, and two of them become one."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_SUFFIX = len("_idempotency_keys_expires_at_idx")


@dataclass(frozen=True, kw_only=True)
class Names:
    """Where the tables are and what they are called."""

    schema: str | None = None
    """Schema of the tables; None: resolved by the connection's ``search_path``.

    Name it explicitly if the application uses ``schema_translate_map``, which would otherwise move
    the outbox along with everything else. The migration creates the schema if it does not exist.
    """

    prefix: str = "outbox"
    """Name of the log, and prefix of every other table's name."""

    channel: str | None = None
    """Channel of NOTIFY; None: ``prefix``, or ``schema_prefix`` when there is a schema.

    Channels belong to the database, not to a schema: two outboxes in one database need two.
    """

    def __post_init__(self) -> None:
        if self.schema is not None:
            check_identifier("schema", self.schema)
        check_identifier("prefix", self.prefix, longest=MAX_IDENTIFIER_BYTES - _LONGEST_SUFFIX)
        check_identifier("channel", self.notify_channel)

    @property
    def notify_channel(self) -> str:
        """The channel in use: ``channel``, or the one made of schema and prefix."""
        if self.channel is not None:
            return self.channel
        return self.prefix if self.schema is None else f"{self.schema}_{self.prefix}"

    @property
    def options(self) -> list[str]:
        """These names as options of the ``sa-outbox`` command; defaults are omitted."""
        given = [] if self.schema is None else ["--schema", self.schema]
        return given if self.prefix == "outbox" else [*given, "--prefix", self.prefix]

    def table(self, suffix: str = "") -> str:
        """Name of a table without its schema: the log, or ``prefix_suffix``."""
        return f"{self.prefix}_{suffix}" if suffix else self.prefix


class FoundNames(Names):
    """Names of existing tables: the schema's name was not chosen by us."""

    def __post_init__(self) -> None:
        """Accept any name."""


def check_identifier(what: str, value: str, *, longest: int = MAX_IDENTIFIER_BYTES) -> None:
    """Refuse a name that would need quoting, be truncated, or hide a statement."""
    if not isinstance(value, str) or not _IDENTIFIER.fullmatch(value):
        raise ConfigError(
            f"{what} must be letters, digits and underscores, not beginning with a digit; "
            f"got {value!r}"
        )
    if len(value.encode()) > longest:
        raise ConfigError(f"{what} {value!r} is longer than {longest} bytes")
    if value.lower().startswith("pg_"):
        raise ConfigError(f"{what} {value!r}: names that begin with pg_ belong to PostgreSQL")
