"""A page of names: the signature and docstring of each; of a class, its fields and methods."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import griffe

from .contents import STANDS_FOR
from .names import described_on, members, options
from .prose import markdown
from .signatures import default_of, is_options, signatures

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .contents import Page

_ABOUT = (
    "Every public name with its signature and what it promises, and every command with its "
    "options. Made of the docstrings by `make reference`."
)


def page_of(page: Page) -> str:
    parts = [
        f"# {page.title}",
        f"{page.about} How it is used: [{page.guide.removesuffix('.md')}](../{page.guide}).",
    ]
    for module, names in described_on(page):
        if len(page.modules) > 1:
            parts.append(f"From `{module}`:")
        for found in names:
            parts += described(found, page.without)
    for name in dict.fromkeys(re.findall(r"Unpack\[(\w+)\]", "\n".join(parts))):
        if f"## `{name}`" not in parts:
            parts += described(options(name), page.without)
    return "\n\n".join(parts) + "\n"


def index_page(written: Mapping[str, str]) -> str:
    lines = [
        "# Names and commands",
        _ABOUT,
    ]
    rows = []
    for file, text in written.items():
        title, about = re.findall(r"^# (.+)\n\n(.+?\.)(?: |$)", text, re.MULTILINE)[0]
        rows.append(f"| [{title}]({file}) | {about} |")
    lines.append("\n".join(["| | |", "| --- | --- |", *rows]))
    lines.append("Errors have a page of their own: [Errors](../errors.md).")
    return "\n\n".join(lines) + "\n"


def described(found: griffe.Object, without: tuple[str, ...] = ()) -> list[str]:
    public_names = {path: name for name, path in STANDS_FOR.items()}
    name = public_names.get(found.path, found.name)
    parts = [f"## `{name}`", *signatures(found, name), *_text(found)]
    if not isinstance(found, griffe.Class):
        return parts
    own = [each for each in members(found) if each.name not in without]
    fields = [each for each in own if isinstance(each, griffe.Attribute)]
    if not is_options(found):  # otherwise the signature has them all
        fields = [each for each in fields if each.docstring]
    if fields:
        parts.append("\n".join(_field(each) for each in fields))
    for method in own:
        if isinstance(method, griffe.Function):
            parts.append(f"### `{found.name}.{method.name}`")
            parts += [*signatures(method, method.name), *_text(method)]
    return parts


def _text(found: griffe.Object) -> list[str]:
    return [markdown(found.docstring.value)] if found.docstring else []


def _field(found: griffe.Attribute) -> str:
    annotation = "" if found.annotation is None else f": {found.annotation}"
    default = "" if "property" in found.labels else default_of(found.value, " = ")
    if found.docstring is None:
        return f"- `{found.name}{annotation}{default}`"
    text = markdown(found.docstring.value)
    indented = "\n".join(f"    {line}".rstrip() for line in text.splitlines()).lstrip()
    return f"- `{found.name}{annotation}{default}`  \n    {indented}"
