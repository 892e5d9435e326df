"""The options for watching a consumer, and the monitor that they request."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sa_outbox.errors import ConfigError
from sa_outbox.monitoring import Metrics, Monitor, prometheus

from .options import variable

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from sa_outbox.consumer import Consumer

F = TypeVar("F", bound="Callable[..., Any]")


def monitor_options(command: F) -> F:
    """``--monitor-port``, ``--monitor-host``, ``--metrics`` and ``--observer``."""
    for option in (
        click.option(
            "--observer",
            "observers",
            metavar="MODULE:ATTRIBUTE",
            multiple=True,
            envvar=variable("observers"),
            show_envvar=True,
            help="Call this with each observation; repeatable (in the variable: separated by "
            "spaces).",
        ),
        click.option(
            "--metrics",
            is_flag=True,
            envvar=variable("metrics"),
            show_envvar=True,
            help="Serve /metrics for Prometheus too. Needs the extra sa_outbox[prometheus].",
        ),
        click.option(
            "--monitor-host",
            metavar="ADDRESS",
            default="127.0.0.1",
            show_default=True,
            envvar=variable("monitor_host"),
            show_envvar=True,
            help="Where the monitor listens. It has no password.",
        ),
        click.option(
            "--monitor-port",
            metavar="PORT",
            type=click.IntRange(0, 65_535),
            envvar=variable("monitor_port"),
            show_envvar=True,
            help="Serve /healthz and /readyz on this port; 0: any that is free, the log says "
            "which.  [default: no monitor]",
        ),
    ):
        command = option(command)
    return command


def make_monitor(
    consumer: Consumer, port: int | None, host: str, *, metrics: bool
) -> AbstractContextManager[Monitor | None]:
    """The monitor that the options request. Raises :class:`ConfigError`."""
    if port is None:
        if metrics:
            raise ConfigError("--metrics needs --monitor-port")
        return nullcontext()
    registry = None
    if metrics:
        observer = Metrics(consumer.outbox)
        registry = prometheus.register(observer)
        consumer.observers.add(observer)
        consumer.outbox.observers.add(observer)  # for what handlers add
    return Monitor(consumer, host=host, port=port, registry=registry)
