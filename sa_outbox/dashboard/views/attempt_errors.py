"""The errors of every attempt of a delivery, with their tracebacks."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sa_outbox.policy.error.tracebacks import traceback_text

from .. import html as h
from .parts import moment, value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from ..html import Child, Markup


def attempt_errors(errors: Sequence[Mapping[str, Any]]) -> Markup:
    """Of what ``parse_errors`` returns."""
    if not errors:
        return h.p("No error was kept.", class_="empty")
    return h.ol([_error(each) for each in errors], class_="errors")


def _error(error: Mapping[str, Any]) -> Markup:
    attempt = "Attempt" if error["attempt"] is None else f"Attempt {error['attempt']}"
    return h.li(
        h.p(
            h.strong(attempt),
            h.code(value(error.get("code"))),
            h.span(value(error.get("error")), class_="note"),
            h.span(_at(error.get("at")), class_="note"),
        ),
        h.pre(value(error.get("message")), tabindex="0"),
        [h.p("caused by ", value(each), class_="note") for each in error.get("causes", ())],
        _traceback(error.get("traceback"), attempt),
    )


def _traceback(stored: Sequence[Mapping[str, Any]] | None, attempt: str) -> Markup | None:
    if not stored:
        return None
    return h.details(
        h.summary("Traceback"),
        h.pre(
            value(traceback_text(stored)),
            class_="traceback",
            tabindex="0",
            role="region",
            aria_label=f"Traceback: {attempt}",
        ),
    )


def _at(stored: str | None) -> Child:
    if stored is None:
        return None
    try:
        return moment(datetime.fromisoformat(stored))
    except (ValueError, OverflowError):
        return value(stored)
