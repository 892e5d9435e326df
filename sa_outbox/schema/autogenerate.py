"""Keep a user's Alembic from proposing to drop our tables."""

from __future__ import annotations

import re
from collections.abc import Callable, MutableMapping
from typing import Literal, TypeAlias

from sa_outbox.settings import Names
from sa_outbox.tables import tables

# As Alembic has them; importing them would load alembic.
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
"""Alembic's hook of this name: is this name, found in the database, to be looked at?"""


def include_name(
    *,
    schema: str | None = None,
    prefix: str = "outbox",
    default_schema: str = "public",
    also: IncludeName | None = None,
) -> IncludeName:
    """Make an ``include_name`` for ``context.configure`` in env.py that hides our tables.

    Autogenerate proposes to drop every table it finds and does not know. This hides ours and the
    partitions of the log by their exact names in their schema, and nothing that is merely named
    alike. *also* is your own ``include_name``, asked about everything else. *default_schema* is
    where ``search_path`` leads: Alembic has no name for that schema, also when you have.

    Hidden means hidden: do not add the outbox's own ``MetaData`` to ``target_metadata`` too.
    """
    names = Names(schema=schema, prefix=prefix)
    ours = {table.name for table in tables(names).metadata.tables.values()}
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
