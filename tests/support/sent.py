"""What a test sends to the database through an engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event


@contextmanager
def noted(engine: Engine) -> Iterator[list[str]]:
    """The first words of each statement that is sent on *engine*, and COMMIT."""
    seen: list[str] = []

    def statement(_connection: Any, _cursor: Any, sql: str, *_: Any) -> None:
        seen.append(sql.split("(", maxsplit=1)[0].strip())

    def commit(_connection: Any) -> None:
        seen.append("COMMIT")

    event.listen(engine, "before_cursor_execute", statement)
    event.listen(engine, "commit", commit)
    yield seen
    event.remove(engine, "before_cursor_execute", statement)
    event.remove(engine, "commit", commit)
