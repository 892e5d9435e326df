"""One format for all lines: JSON, or for people on a terminal and where somebody asks for it.

The consumer logs through structlog once it is configured. Lines of a handler have its event:
``merge_contextvars`` adds ``event_id``, ``request_id`` and what else is known.
"""

from __future__ import annotations

import sys

import structlog
from structlog.typing import Processor

from .settings import settings


def configure_logs() -> None:
    rendered: list[Processor]
    if sys.stdout.isatty() or settings.log_format == "console":
        rendered = [structlog.dev.ConsoleRenderer()]
    else:
        rendered = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *rendered,
        ]
    )
