"""What a run found out and no assertion says: shown at its end, passed or failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

Notice = Callable[[str], None]
"""What the fixture ``notice`` gives."""
PROPERTY = "notice"
"""With a report, which the processes of pytest-xdist send."""


def show_notices(terminal: TerminalReporter) -> None:
    reports = [*terminal.getreports("passed"), *terminal.getreports("failed")]
    texts = [text for each in reports for name, text in each.user_properties if name == PROPERTY]
    if texts:
        terminal.section("notices")
        for text in dict.fromkeys(texts):
            terminal.write_line(str(text))
