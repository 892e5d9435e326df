"""``monitoring``: files for Grafana and Prometheus, printed."""

from __future__ import annotations

from importlib.resources import files

import click

from .answers import NearChoice

FILES = {"grafana": "grafana.json", "alert-rules": "alert-rules.yml"}


@click.command()
@click.argument("what", type=NearChoice(sorted(FILES)))
def monitoring(*, what: str) -> None:
    """Print files for Grafana and Prometheus.

    A dashboard for Grafana, or alert rules for Prometheus.

    \b
    Examples:
        sa-outbox monitoring grafana > sa_outbox.json
        sa-outbox monitoring alert-rules > sa_outbox.rules.yml
    """
    # By the path: importing the package would load a consumer.
    found = files("sa_outbox").joinpath("monitoring", "files", FILES[what])
    click.echo(found.read_text(encoding="utf-8"), nl=False)
