"""One problem with the tables, as ``verify`` and the doctor report it."""

from __future__ import annotations

from dataclasses import dataclass

from sa_outbox.errors import SchemaError


@dataclass(frozen=True)
class Problem:
    """One problem."""

    code: str
    """Stable; docs/troubleshooting.md has a section for each."""

    what: str
    """A sentence for people."""

    fix: str
    """The command or statement that fixes it, or what to do when no single one does."""

    def __str__(self) -> str:
        return f"{self.what}. To fix it: {self.fix}"


def refuse(found: list[Problem]) -> None:
    """Raise ``SchemaError`` with these, if there are any."""
    lines = [str(problem) for problem in found]
    if lines:
        raise SchemaError("\n".join(["the outbox is not ready:", *lines]), problems=lines)


def quote(name: str) -> str:
    """A name, quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'
