"""The monitor that the options request."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from sa_outbox.errors import ConfigError
from sa_outbox.monitoring import Metrics, Monitor, prometheus

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sa_outbox.consumer import Consumer


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
