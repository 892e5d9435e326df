"""The README as a package index shows it, made when the package is built.

An index knows no files beside a README: links into the repository lead nowhere there. Here they
become addresses of the tag that is being released, below ``Source`` in ``[project.urls]`` of
pyproject.toml. Without that entry a link becomes its own text, and a picture is left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_FENCED = re.compile(r"(^```.*?^```$\n?)", re.MULTILINE | re.DOTALL)
_PICTURE = re.compile(r"!\[(?P<text>[^\]]*)\]\((?P<path>(?!https?:)[^)\s]+)\)\n*")
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<path>(?!https?:|mailto:|#)[^)\s]+)\)")


class ReadmeHook(MetadataHookInterface):
    """``[tool.hatch.metadata.hooks.custom]`` says what an address looks like on the host."""

    def update(self, metadata: dict[str, Any]) -> None:
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        known = {"Source": metadata.get("urls", {}).get("Source", "").rstrip("/")}
        known["version"] = metadata["version"]
        files, pictures = ("", "")
        if known["Source"]:
            files, pictures = (self.config[each].format(**known) for each in ("files", "pictures"))
        text = readme_for_an_index(readme, files=files, pictures=pictures)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def readme_for_an_index(readme: str, *, files: str, pictures: str) -> str:
    """The text without relative links; *files* and *pictures* are put before a path, unless empty.

    What stands in a block of code is left alone.
    """
    parts = _FENCED.split(readme)
    parts[::2] = [_absolute(each, files, pictures) for each in parts[::2]]
    return "".join(parts)


def _absolute(prose: str, files: str, pictures: str) -> str:
    with_pictures = rf"![\g<text>]({pictures}\g<path>)\n\n" if pictures else ""
    with_links = rf"[\g<text>]({files}\g<path>)" if files else r"\g<text>"
    return _LINK.sub(with_links, _PICTURE.sub(with_pictures, prose))
