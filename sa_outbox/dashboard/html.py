"""HTML as values: text is escaped because it is text, and only an element is markup.

``div("<b>", class_="note")`` is ``<div class="note">&lt;b&gt;</div>``. Nothing treats a string as
markup, and no attribute can hold a script: URLs must stay inside this application, and names that
begin with ``on`` are refused, as is ``style``, which the pages' policy would block anyway.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final, TypeAlias, Union

Child: TypeAlias = Union[str, int, "Markup", Iterable["Child"], None]
Attribute: TypeAlias = str | int | bool | None

_VOID: Final = {"input", "meta", "link"}
_ADDRESSES: Final = {"href", "src", "action", "formaction"}


class Markup:
    """Created by elements only. There is no way to turn text into markup."""

    __slots__ = ("_text",)

    def __init__(self, tag: str, children: Iterable[Child], attributes: dict[str, Attribute]):
        opening = f"<{tag}{''.join(_attributes(attributes))}>"
        inside = "" if tag in _VOID else f"{''.join(_texts(children))}</{tag}>"
        self._text = opening + inside

    def __str__(self) -> str:
        return self._text


class Tag:
    """A kind of element. Called with its content and attributes: ``class_``, ``for_`` and
    ``aria_label`` are ``class``, ``for`` and ``aria-label``. None and False omit an attribute."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *children: Child, **attributes: Attribute) -> Markup:
        return Markup(self._name, children, attributes)


def document(root: Markup) -> str:
    return f"<!doctype html>\n{root}\n"


def joined(children: Iterable[Child]) -> str:
    """Siblings, without an element around them."""
    return "".join(_texts(children))


def _texts(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if child is None:
            continue
        if isinstance(child, Markup):
            yield str(child)
        elif isinstance(child, (str, int)):
            yield escape(str(child))
        else:
            yield from _texts(child)


def _attributes(attributes: dict[str, Attribute]) -> Iterable[str]:
    for given, value in attributes.items():
        name = given.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if name.startswith("on") or name == "style":
            raise ValueError(f"an element has no {name}: the policy of the pages forbids it")
        if name in _ADDRESSES and not _leads_inside(str(value)):
            raise ValueError(f"{name} leads out of the dashboard")
        yield f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def _leads_inside(address: str) -> bool:
    """Not ``javascript:``, not ``//elsewhere``, nor anything a browser reads as one of them."""
    if address.startswith(("?", "#")):
        return True
    return address.startswith("/") and not address.startswith(("//", "/\\"))


a: Tag = Tag("a")
bdi: Tag = Tag("bdi")
body: Tag = Tag("body")
button: Tag = Tag("button")
caption: Tag = Tag("caption")
code: Tag = Tag("code")
datalist: Tag = Tag("datalist")
dd: Tag = Tag("dd")
del_: Tag = Tag("del")
details: Tag = Tag("details")
div: Tag = Tag("div")
dl: Tag = Tag("dl")
dt: Tag = Tag("dt")
form: Tag = Tag("form")
h1: Tag = Tag("h1")
h2: Tag = Tag("h2")
h3: Tag = Tag("h3")
head: Tag = Tag("head")
header: Tag = Tag("header")
html: Tag = Tag("html")
input_: Tag = Tag("input")
ins: Tag = Tag("ins")
label: Tag = Tag("label")
li: Tag = Tag("li")
link: Tag = Tag("link")
main: Tag = Tag("main")
meta: Tag = Tag("meta")
nav: Tag = Tag("nav")
ol: Tag = Tag("ol")
option: Tag = Tag("option")
p: Tag = Tag("p")
pre: Tag = Tag("pre")
script: Tag = Tag("script")
section: Tag = Tag("section")
select: Tag = Tag("select")
span: Tag = Tag("span")
strong: Tag = Tag("strong")
summary: Tag = Tag("summary")
svg: Tag = Tag("svg")
svg_line: Tag = Tag("line")
svg_path: Tag = Tag("path")
svg_text: Tag = Tag("text")
table: Tag = Tag("table")
tbody: Tag = Tag("tbody")
td: Tag = Tag("td")
textarea: Tag = Tag("textarea")
th: Tag = Tag("th")
thead: Tag = Tag("thead")
time: Tag = Tag("time")
title: Tag = Tag("title")
tr: Tag = Tag("tr")
ul: Tag = Tag("ul")
