"""Writes docs/llms.txt: the pages of the site, one line each, for programs that read it.

In the order of the navigation. A line has a page's title and its first sentence, so it is as good
as the page's beginning. The addresses are relative: nobody knows yet where the site will be.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "llms.txt"

_NOT_PROSE = re.compile(r"\A---\n.*?\n---\n|<!--.*?-->|^(```|~~~).*?^\1$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_SENTENCE = re.compile(r"^.+?(?:[.?](?=\s|$)|$)", re.DOTALL)
_OTHER = ("#", "|", "-", ">", "!", "**", "1.", "Checked in")


def main() -> None:
    TARGET.write_text(text())


def text() -> str:
    site = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    return f"# {site['site_name']}\n\n> {site['site_description']}\n" + "".join(
        f"\n## {name}\n\n" + "".join(f"{line_of(page)}\n" for page in pages_of(entries))
        for part in site["nav"]
        for name, entries in part.items()
    )


def pages_of(entries: list[dict[str, Any]]) -> Iterator[str]:
    """The pages of a part of the navigation, however deep."""
    for entry in entries:
        for target in entry.values():
            if isinstance(target, str):
                yield target
            else:
                yield from pages_of(target)


def line_of(page: str) -> str:
    paragraphs = _NOT_PROSE.sub("", (ROOT / "docs" / page).read_text()).split("\n\n")
    prose = [each.strip() for each in paragraphs if each.strip()]
    title = prose[0].removeprefix("# ")
    address = page.removesuffix(".md").removesuffix("index").rstrip("/")
    return f"- [{title}]({address or '.'}/): {first_sentence(prose[1:])}"


def first_sentence(paragraphs: list[str]) -> str:
    """Of the first paragraph that is prose and no date, table, list or heading."""
    for paragraph in paragraphs:
        plain = " ".join(_LINK.sub(r"\1", paragraph).split())
        found = _SENTENCE.match(plain)
        if found is not None and not plain.startswith(_OTHER):
            return found[0].rstrip(":")
    return ""


if __name__ == "__main__":
    main()
