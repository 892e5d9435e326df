"""Monitoring a consumer: everything is derived from its observations.

=====================  ============================================================================
``families.py``        every metric: its name, its kind, its labels, what it counts
``label_values.py``    a limited number of names from outside of the program
``metrics.py``         an observer that counts; plain numbers, no library
``prometheus.py``      those numbers for a registry of ``prometheus_client`` (imported on use)
``health.py``          an observer that knows: is it alive, is it ready
``server.py``          ``/healthz``, ``/readyz`` and ``/metrics``, from a thread of its own
``traces.py``          OpenTelemetry: spans of adding and handling (imported on use)
``sentry.py``          Sentry: an event for each dead letter (imported on use)
``files/``             a dashboard for Grafana, and alert rules for Prometheus
=====================  ============================================================================

A consumer needs none of this, and ``import sa_outbox`` loads none of it.

Imports ``consumer`` and the rooms below it.
"""

from .health import Health
from .metrics import Metrics
from .server import Monitor

__all__ = ["Health", "Metrics", "Monitor"]
