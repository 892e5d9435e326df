"""A real PostgreSQL for a demo, for tests, for development: no installation, no container.

::

    with EmbeddedPostgres() as server:
        engine = create_async_engine(server.url("asyncpg"))

Three processes::

    your program ──pipe── supervisor ── postgres

| step | module |
| --- | --- |
| find the binaries: a wheel's, or the system's | ``binaries.py`` |
| choose who runs them: postgres refuses to run as root | ``account.py`` |
| the handle: start, stop, the URL | ``server.py`` |
| pass the plan to a supervisor, get the port and the password | ``link.py`` |
| create the folders, run initdb and postgres, wait, stop, remove | ``supervisor.py`` |

Guarantees: the server listens on loopback only and requires a random password. It ends with the
program, however that ends: ``stop()``, the end of the interpreter, SIGKILL. A fork of the program
may use the server but can't stop it. A temporary server leaves nothing behind.

Not for production: a temporary server does not write safely, and nobody takes backups.

Imports ``errors`` only: ``supervisor.py`` runs without the package around it.
"""

from .server import EmbeddedPostgres as EmbeddedPostgres

__all__ = ["EmbeddedPostgres"]
