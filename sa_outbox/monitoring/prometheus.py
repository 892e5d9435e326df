"""The numbers of a ``Metrics`` for ``prometheus_client``, the extra ``sa_outbox[prometheus]``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sa_outbox.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

    from .metrics import Metrics


def register(metrics: Metrics, registry: CollectorRegistry | None = None) -> CollectorRegistry:
    """Add these numbers to *registry*, or to a new registry.

    ``prometheus_client.REGISTRY`` shows them next to the program's own. Raises :class:`ConfigError`
    when ``prometheus_client`` is not installed.
    """
    library = _library("prometheus_client")
    own: CollectorRegistry = registry or library.CollectorRegistry(auto_describe=False)
    own.register(_Collector(metrics))
    return own


def rendered(registry: CollectorRegistry) -> tuple[str, bytes]:
    """The content type, and everything in *registry*, in Prometheus' format."""
    library = _library("prometheus_client")
    return str(library.CONTENT_TYPE_LATEST), bytes(library.generate_latest(registry))


class _Collector:
    """Called at each scrape. Reads copies: a consumer never waits for a lock."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._core = _library("prometheus_client.core")

    def collect(self) -> Iterator[Metric]:
        kinds = {
            "counter": self._core.CounterMetricFamily,
            "gauge": self._core.GaugeMetricFamily,
        }
        for family, numbers in self._metrics.numbers():
            shown = kinds[family.kind](family.name, family.text, labels=family.labels)
            for labels, value in numbers.items():
                shown.add_metric(labels, value)
            yield shown
        for family, found in self._metrics.histograms():
            shown = self._core.HistogramMetricFamily(family.name, family.text, labels=family.labels)
            for labels, (counts, total) in found.items():
                summed = _summed_up(family.buckets, counts)
                shown.add_metric(labels, buckets=summed, sum_value=total)
            yield shown


def _summed_up(buckets: tuple[float, ...], counts: list[int]) -> list[tuple[str, float]]:
    """Each bound with how many are at or below it, as the format requires."""
    bounds = [*(str(each) for each in buckets), "+Inf"]
    below, summed = 0, []
    for bound, count in zip(bounds, counts, strict=True):
        below += count
        summed.append((bound, float(below)))
    return summed


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(
            "metrics need prometheus_client: pip install 'sa_outbox[prometheus]'"
        ) from error
