"""The command ``sa-outbox``. One file for each group of commands, loaded on use.

Exit codes: 0 done, 1 it could not be done or something is wrong, 2 wrong usage.
An expected failure is one line on stderr, never a traceback, and never a password.

==========================  ======================================================================
``lazy.py``                 commands that are imported on use
``answers.py``              failures in one line, and what a database is called
``display.py``              tables and times, and nothing that drives the terminal
``terminal.py``             a screen that is redrawn repeatedly, and keys without Enter
``operator.py``             what operators' commands share: connection, who and why, confirmation
``schema.py``               ``migrate``, ``verify``, ``revision``
``grants.py``               ``grants``
``copies.py``               ``adopt``
``run.py``                  ``consume``, ``repartition``, ``demo``
``status.py``               ``status``, ``top``
``doctor.py``               ``doctor``
``listeners.py``            ``listeners``
``queues.py``               ``queues``
``deliveries.py``           ``deliveries``
``events.py``               ``events``
``dead_letters.py``         ``dead-letters``: list and show
``dead_letter_actions.py``  ``dead-letters``: replay, discard, edit
``endpoints.py``            ``endpoints``
``endpoint_change.py``      ``endpoints``: change
``endpoint_options.py``     ``endpoints``: what an endpoint is stored with, as options
``endpoint_secrets.py``     ``endpoints``: rotate, reseal, new-key
``crons.py``                ``crons``
``audit.py``                ``audit``, ``durations``
``prune.py``                ``prune``
``dashboard.py``            ``dashboard``
``monitoring.py``           ``monitoring``
``catalog.py``              ``catalog``
``completion.py``           ``completion``
==========================  ======================================================================

Imports ``consume``, ``dashboard``, ``demo``, ``doctor`` and the rooms below them.
"""

from __future__ import annotations

import click

from sa_outbox._version import __version__

from .lazy import LazyGroup

SECTIONS = {
    "Set up": {
        "adopt": "copies:adopt",
        "catalog": "catalog:catalog",
        "completion": "completion:completion",
        "grants": "grants:grants",
        "migrate": "schema:migrate",
        "monitoring": "monitoring:monitoring",
        "revision": "schema:revision",
        "verify": "schema:verify",
    },
    "Run": {
        "consume": "run:consume",
        "dashboard": "dashboard:dashboard",
        "demo": "run:demo",
        "prune": "prune:prune",
        "repartition": "run:repartition",
    },
    "Inspect": {
        "audit": "audit:audit",
        "doctor": "doctor:doctor",
        "durations": "audit:durations",
        "queues": "queues:queues",
        "status": "status:status",
        "top": "status:top",
    },
    "Inspect and repair": {
        "crons": "crons:crons",
        "dead-letters": "dead_letter_actions:dead_letters",
        "deliveries": "deliveries:deliveries",
        "endpoints": "endpoints:endpoints",
        "events": "events:events",
        "listeners": "listeners:listeners",
    },
}
"""As ``--help`` shows them; each command's file in this package, and its name there."""

COMMANDS = {name: place for section in SECTIONS.values() for name, place in section.items()}


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="sa-outbox")
def main() -> None:
    """The transactional outbox for SQLAlchemy on PostgreSQL.

    \b
    See it work, on a PostgreSQL of its own:
        sa-outbox demo
    Create or update the tables, without Alembic:
        export DATABASE_URL=postgresql://user:password@host/name
        sa-outbox migrate
    In your own Alembic history:
        sa-outbox revision && alembic upgrade head
    Is everything in order?
        sa-outbox verify
        sa-outbox doctor shop.app:outbox
    Deliver the events to your listeners:
        python -m sa_outbox.consume shop.app:outbox
    Inspect and repair, in a browser:
        sa-outbox dashboard shop.app:outbox
    What is the state, and what was given up?
        sa-outbox status
        sa-outbox dead-letters list
    """
