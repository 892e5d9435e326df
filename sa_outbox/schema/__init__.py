"""Creating the schema and verifying it.

======================  ==========================================================================
``apply.py``            ``migrate``: bring the tables to a version, in one transaction, one deploy
                        at a time
``inspection.py``       ``verify``: every problem with them, each with the command that fixes it
``problem.py``          one problem
``consumer_rights.py``  what a consumer needs beyond the tables: rights
``grants.py``           the statements that give a role its rights
``identity.py``         is this database a copy? ``adopt`` lets it act on the outside world
``autogenerate.py``     ``include_name``: a user's Alembic leaves our tables alone
``revision.py``         writes a revision into a user's Alembic history (needs alembic; imported
                        on use)
``connect.py``          runs any of these on a database URL
``url.py``              the database URL of a command
======================  ==========================================================================

All take a plain synchronous ``Connection``. With an ``AsyncConnection``:
``await connection.run_sync(schema.migrate, names)``.

Imports ``migrations``, ``settings``, ``sql`` and the rooms below them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

# Names are imported on first use, as in ``sa_outbox``: commands need ``url.py`` at once, and must
# not wait for SQLAlchemy before they print their first line.
if TYPE_CHECKING:
    from .apply import migrate as migrate
    from .apply import version as version
    from .autogenerate import include_name as include_name
    from .connect import transact as transact
    from .consumer_rights import hidden_rows as hidden_rows
    from .consumer_rights import missing_grants as missing_grants
    from .consumer_rights import verify_consuming as verify_consuming
    from .grants import warnings as warnings
    from .inspection import migrate_command as migrate_command
    from .inspection import problems as problems
    from .inspection import verify as verify
    from .problem import Problem as Problem
else:
    _HOMES = {
        "Problem": "problem",
        "hidden_rows": "consumer_rights",
        "include_name": "autogenerate",
        "migrate": "apply",
        "migrate_command": "inspection",
        "missing_grants": "consumer_rights",
        "problems": "inspection",
        "transact": "connect",
        "verify": "inspection",
        "verify_consuming": "consumer_rights",
        "version": "apply",
        "warnings": "grants",
    }

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = value  # found directly from now on
        return value
