"""Building blocks of the pages: times, numbers, states, tables, pagers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import urlencode

from .. import html as h

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..html import Child, Markup

Tone: TypeAlias = Literal["good", "warn", "bad", "quiet", "info"]

NOTHING: Final = "\u2013"
"""Where there is no value: a dash."""
# Characters that change the surrounding text, or are invisible.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]"
)


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    numeric: bool = False
    wide: bool = False


def value(text: str | None) -> Markup:
    """A user's text: shown verbatim, set apart from the surrounding text."""
    if text is None:
        return h.span(NOTHING, class_="none")
    return h.bdi(visible(text))


def visible(text: str) -> str:
    return _UNSEEN.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def state(word: str, tone: Tone) -> Markup:
    """By colour and by word: nobody depends on seeing the colour."""
    return h.span(word, class_=f"state {tone}")


def moment(at: datetime | None) -> Markup:
    if at is None:
        return h.span(NOTHING, class_="none")
    utc = at.astimezone(UTC)
    text = f"{utc:%Y-%m-%d %H:%M:%S}"
    return h.time(text, datetime=utc.isoformat(), title=f"{utc.isoformat()} (UTC)")


def ago(at: datetime | None, now: datetime) -> Markup:
    if at is None:
        return h.span(NOTHING, class_="none")
    past = (now - at).total_seconds()
    text = f"{span(past)} ago" if past >= 0 else f"in {span(-past)}"
    utc = at.astimezone(UTC)
    return h.time(text, datetime=utc.isoformat(), title=f"{utc:%Y-%m-%d %H:%M:%S} UTC")


def span(seconds: float | None) -> str:
    """A duration that is easy to read."""
    if seconds is None:
        return NOTHING
    if seconds < 0.95:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.0005 else "0 s"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 9.5 else f"{seconds:.1f} s"


def count(number: int, most: int | None = None) -> str:
    """With thousands separators; a number that was counted up to *most* is a lower bound."""
    return f"{number:,}" + ("+" if most is not None and number >= most else "")


def counted(number: int, noun: str) -> str:
    """``1 listener``, ``2 listeners``."""
    return f"{count(number)} {noun}" + ("" if number == 1 else "s")


def rate(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 10 or not per_second else f"{per_second:.1f}"


def table(
    caption: str, columns: Sequence[Column], rows: Iterable[Sequence[Child]], *, empty: str
) -> Markup:
    """A table with a head and a caption. On a narrow screen each row becomes a card, so each cell
    knows its column's title; the roles stay although the layout changes."""
    body = [
        h.tr(
            *(
                h.td(
                    h.div(cell),
                    class_="num" if column.numeric else ("wide" if column.wide else None),
                    data_label=column.title,
                    role="cell",
                )
                for column, cell in zip(columns, row, strict=True)
            ),
            role="row",
        )
        for row in rows
    ]
    if not body:
        return h.p(empty, class_="empty")
    titles = [
        h.th(
            column.title or h.span("Choose", class_="unseen"),
            scope="col",
            class_="num" if column.numeric else None,
            role="columnheader",
        )
        for column in columns
    ]
    return h.table(
        h.caption(caption, class_="unseen"),
        h.thead(h.tr(titles, role="row"), role="rowgroup"),
        h.tbody(body, role="rowgroup"),
        role="table",
    )


def facts(*pairs: tuple[str, Child]) -> Markup:
    return h.dl(*(h.div(h.dt(name), h.dd(shown)) for name, shown in pairs), class_="facts")


def query(path: str, given: Mapping[str, object]) -> str:
    kept = {name: str(each) for name, each in given.items() if each not in (None, "")}
    return f"{path}?{urlencode(kept)}" if kept else path


def pager(first: str | None, following: str | None) -> Markup | None:
    """By where the next page begins, never by its number: rows come and go meanwhile."""
    if first is None and following is None:
        return None
    return h.nav(
        h.a("⇤ First page", href=first, class_="button") if first else h.span(),
        h.a("Next page →", href=following, class_="button", rel="next") if following else None,
        aria_label="Further pages",
        class_="pager",
    )


def field(name: str, title: str, given: str | None, **attributes: str | int | bool) -> Markup:
    return h.label(title, h.input_(name=name, value=given or "", **attributes))


def choices(name: str, title: str, options: Sequence[tuple[str, str]], given: str | None) -> Markup:
    listed = [
        h.option(shown, value=each, selected=each == (given or "")) for each, shown in options
    ]
    return h.label(title, h.select(listed, name=name))


def named(names: Sequence[str], asked: str | None) -> list[tuple[str, str]]:
    """All of them, and the one that was asked for: it may be gone meanwhile."""
    known = [*names, *([asked] if asked and asked not in names else [])]
    return [("", "any"), *((each, each) for each in known)]


def suggestions(
    name: str, title: str, known: Sequence[str], given: str | None, **attributes: str
) -> Markup:
    """A field to choose from what there is, or to type something else into."""
    return h.label(
        title,
        h.input_(
            name=name, value=given or "", list=f"{name}-list", autocomplete="off", **attributes
        ),
        h.datalist([h.option(value=each) for each in known], id=f"{name}-list"),
    )


def owner(text: str | None) -> Markup:
    """A process: its host and number, and on demand what tells it from others of these."""
    if text is None:
        return h.span(NOTHING, class_="none")
    shown = visible(text)
    return h.code(shown.rpartition(":")[0] or shown, title=shown)


def json_block(text: str, title: str) -> Markup:
    return h.pre(
        h.code(visible(text)), class_="json", tabindex="0", role="region", aria_label=title
    )
