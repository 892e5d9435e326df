"""The schema's versions, as frozen statements: ``v0001.py``, with names checked by
``identifiers.py``.

``vNNNN.py`` holds the step from version NNNN - 1 to NNNN and back: functions that return
statements and run nothing. One copy of the DDL serves the three ways to create the schema:
``alembic upgrade`` in this repository, ``sa-outbox migrate``, and a revision of a user's own
Alembic history. As ordinary modules they are in the wheel without tricks, and a user's history
keeps its one head (a second ``version_locations`` folder would give it two). Once released, a step
never changes: a revision written years ago makes today what it made then.

In a revision of your own (``sa-outbox revision`` writes it)::

    from alembic import op
    from sa_outbox import migrations

    def upgrade() -> None:
        migrations.upgrade(op, since=0, to=1)

    def downgrade() -> None:
        migrations.downgrade(op, since=1, to=0)

Both versions are explicit on purpose: "the latest" would mean something else after the next update
of this package.

Every step ends by writing its number into ``outbox_meta``, so that table has the version
whichever way was used. No statement has a colon (``op.execute`` would take it for a parameter) or
a percent sign (some drivers would).

Imports ``errors`` only.
"""

from __future__ import annotations

from typing import Protocol

from sa_outbox.errors import ConfigError

from . import v0001
from .identifiers import check_names

LATEST = 1
"""The version this release of the package creates and works best with."""

OLDEST_SUPPORTED = max(1, LATEST - 1)
"""The oldest version this release works on: code may be deployed before its migration."""

_STEPS = {1: v0001}


class Operations(Protocol):
    """The part of ``alembic.op`` that is used."""

    def execute(self, sqltext: str, /) -> object: ...


def upgrade(
    op: Operations, *, since: int, to: int, schema: str | None = None, prefix: str = "outbox"
) -> None:
    """Bring the tables from version *since* (0: there are none) to version *to*.

    One ``op.execute`` per statement, without querying the database: works with ``--sql`` too.
    """
    if to <= since:
        raise ConfigError(f"upgrade goes up: to={to} is not above since={since}")
    for statement in statements(since=since, to=to, schema=schema, prefix=prefix):
        op.execute(statement)


def downgrade(
    op: Operations, *, since: int, to: int, schema: str | None = None, prefix: str = "outbox"
) -> None:
    """Bring the tables from version *since* back to version *to* (0: drops them with their events).

    A schema that the upgrade created stays: something else may be in it by now.
    """
    if to >= since:
        raise ConfigError(f"downgrade goes down: to={to} is not below since={since}")
    for statement in statements(since=since, to=to, schema=schema, prefix=prefix):
        op.execute(statement)


def statements(
    *, since: int, to: int, schema: str | None = None, prefix: str = "outbox"
) -> tuple[str, ...]:
    """The statements that lead from version *since* to version *to*, in order."""
    for version in (since, to):
        if type(version) is not int or not 0 <= version <= LATEST:
            raise ConfigError(f"schema version must be from 0 to {LATEST}, not {version!r}")
    check_names(schema, prefix)
    if to > since:
        steps = [_STEPS[n].upgrade(schema, prefix) for n in range(since + 1, to + 1)]
    else:
        steps = [_STEPS[n].downgrade(schema, prefix) for n in range(since, to, -1)]
    return tuple(statement for step in steps for statement in step)
