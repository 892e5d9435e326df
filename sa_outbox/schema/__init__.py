"""Making the schema and verifying it.

| module | what |
| --- | --- |
| ``apply`` | ``migrate``: bring the tables to a version, in one transaction, one deploy at a time |
| ``inspection`` | ``verify``: all that is wrong with them, each with the command that mends it |
| ``consuming`` | the same, and the rights a consumer needs |
| ``identity`` | is this database a copy? ``adopt``: it may act on the world |
| ``autogenerate`` | ``include_name``: so that a user's Alembic leaves our tables alone |
| ``revision`` | write the revision into a user's Alembic history (needs alembic; imported on use) |
| ``connect`` | run any of these on a database URL |

All take a plain synchronous ``Connection``. With an ``AsyncConnection``:
``await connection.run_sync(schema.migrate, names)``.
"""

from .apply import migrate as migrate
from .apply import version as version
from .autogenerate import include_name as include_name
from .connect import transact as transact
from .consuming import missing_grants as missing_grants
from .consuming import verify_consuming as verify_consuming
from .inspection import Problem as Problem
from .inspection import migrate_command as migrate_command
from .inspection import problems as problems
from .inspection import verify as verify
