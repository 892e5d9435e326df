"""A docstring as Markdown."""

from __future__ import annotations

import re
import textwrap

_ROLE = re.compile(r":\w+:`~?([^`]+)`")
_CODE = re.compile(r"``(.+?)``", re.DOTALL)


def markdown(docstring: str) -> str:
    """Code in single backticks, blocks after ``::`` in fences; the rest is Markdown already."""
    text = _CODE.sub(lambda found: f"`{' '.join(found[1].split())}`", docstring)
    return _fenced(_ROLE.sub(r"`\1`", text)).strip()


def _fenced(text: str) -> str:
    paragraphs: list[str] = []
    code: list[str] = []
    announced = False
    for paragraph in re.split(r"\n\s*\n", text):
        if announced and paragraph.startswith("    "):
            code.append(textwrap.dedent(paragraph).rstrip())
            continue
        if code:
            paragraphs.append(_block(code))
            code = []
        announced = paragraph.rstrip().endswith("::")
        if paragraph.strip() != "::":
            paragraphs.append(re.sub(r"::$", ":", paragraph.rstrip()))
    if code:
        paragraphs.append(_block(code))
    return "\n\n".join(paragraphs)


def _block(code: list[str]) -> str:
    return "```python\n" + "\n\n".join(code) + "\n```"
