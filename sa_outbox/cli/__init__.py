"""The command ``sa-outbox``. One file for each group of commands, loaded when it is asked for.

Exit codes: 0 done, 1 it could not be done or something is wrong, 2 wrong usage.
An expected failure is one line on stderr, never a traceback, and never a password.
"""

from __future__ import annotations

import click

from sa_outbox._version import __version__

from .lazy import LazyGroup

COMMANDS = {
    "adopt": "copies:adopt",
    "completion": "completion:completion",
    "consume": "running:consume",
    "dashboard": "dashboard:dashboard",
    "dead-letters": "resolving:dead_letters",
    "demo": "running:demo",
    "doctor": "doctor:doctor",
    "endpoints": "endpoints:endpoints",
    "events": "events:events",
    "listeners": "listeners:listeners",
    "migrate": "schema:migrate",
    "monitoring": "monitoring:monitoring",
    "prune": "pruning:prune",
    "repartition": "running:repartition",
    "revision": "schema:revision",
    "status": "status:status",
    "top": "status:top",
    "verify": "schema:verify",
}
"""Each command to its file here, and its name in it."""


@click.group(
    cls=LazyGroup,
    commands_of=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="sa-outbox")
def main() -> None:
    """The transactional outbox for SQLAlchemy on PostgreSQL.

    \b
    See it work, on a PostgreSQL of its own:
        sa-outbox demo
    Make or update the tables, without Alembic:
        export SA_OUTBOX_DATABASE_URL=postgresql://user:password@host/name
        sa-outbox migrate
    In an Alembic history of your own:
        sa-outbox revision && alembic upgrade head
    Is everything in order?
        sa-outbox verify
        sa-outbox doctor shop.app:outbox
    Deliver the events to your listeners:
        sa-outbox consume shop.app:outbox
    See and repair, in a browser:
        sa-outbox dashboard shop.app:outbox
    How does everything stand, and what was given up?
        sa-outbox status
        sa-outbox dead-letters list
    """
