"""Keep a user's Alembic from proposing to drop our tables."""

from __future__ import annotations

import re
from collections.abc import Callable, MutableMapping
from typing import Literal, TypeAlias

from sa_outbox.database.tables import tables
from sa_outbox.settings import Names

# Alembic's types; importing them would load alembic.
Kind: TypeAlias = Literal[
    "schema",
    "table",
    "column",
    "index",
    "unique_constraint",
    "foreign_key_constraint",
    "check_constraint",
]
Parents: TypeAlias = MutableMapping[
    Literal["schema_name", "table_name", "schema_qualified_table_name"], str | None
]
IncludeName: TypeAlias = Callable[[str | None, Kind, Parents], bool]
"""Alembic's hook: should this name, found in the database, be compared?"""


def include_name(
    *,
    schema: str | None = None,
    prefix: str = "outbox",
    default_schema: str = "public",
    also: IncludeName | None = None,
) -> IncludeName:
    """Make an ``include_name`` for ``context.configure`` in env.py that hides our tables.

    Autogenerate proposes to drop every table it finds and does not know. This hides ours and the
    log's partitions by their exact names in their schema, and nothing that merely has a similar
    name. *also* is your own ``include_name``, called for everything else. *default_schema* is the
    schema that ``search_path`` resolves to: Alembic has no name for it, even if you do.

    Do not also add the outbox's own ``MetaData`` to ``target_metadata``: these tables are hidden.
    """
    names = Names(schema=schema, prefix=prefix)
    ours = {*tables(names).relation_names}
    ours |= {names.table("rest"), names.table("alembic_version")}
    partition = re.compile(rf"{re.escape(prefix)}_p[0-9]+")
    here = schema or default_schema

    def include(name: str | None, type_: Kind, parent_names: Parents) -> bool:
        if (
            type_ == "table"
            and name is not None
            and (parent_names.get("schema_name") or default_schema) == here
            and (name in ours or partition.fullmatch(name))
        ):
            return False
        return also is None or also(name, type_, parent_names)

    return include
