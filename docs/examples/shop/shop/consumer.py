"""The process that delivers: ``python -m sa_outbox.consume shop.consumer:outbox``."""

from __future__ import annotations

from .listeners import outbox
from .logs import configure_logs

__all__ = ["outbox"]

configure_logs()
