"""The frame of every page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .. import html as h
from ..assets import address
from ..forms import FORM_TOKEN

if TYPE_CHECKING:
    from ..guard import Visit
    from ..html import Child, Markup
    from ..settings import DashboardSettings

_PAGES: Final = (
    ("/", "Overview"),
    ("/listeners", "Listeners"),
    ("/deliveries", "Deliveries"),
    ("/events", "Events"),
    ("/dead-letters", "Dead letters"),
    ("/crons", "Crons"),
    ("/endpoints", "Endpoints"),
    ("/catalogue", "Catalogue"),
    ("/audit", "Audit"),
)


@dataclass(frozen=True, slots=True)
class Frame:
    """What every page knows about its request."""

    settings: DashboardSettings
    visit: Visit

    @property
    def may_change(self) -> bool:
        return self.visit.may_change

    def url(self, path: str) -> str:
        return f"{self.visit.base}{path}"

    def page(self, title: str, *content: Child, at: str = "") -> str:
        """A whole page; *at* is the part of the navigation it belongs to."""
        return h.document(
            h.html(
                self._head(title),
                h.body(
                    h.a("Skip to the content", href="#content", class_="skip"),
                    self._header(at),
                    h.main(*content, id="content", tabindex="-1"),
                ),
                lang="en",
            )
        )

    def post(self, action: str, *content: Child, **attributes: str) -> Markup:
        """A form that changes something."""
        token = h.input_(type="hidden", name=FORM_TOKEN, value=self.visit.form_token)
        return h.form(token, *content, method="post", action=self.url(action), **attributes)

    def _head(self, title: str) -> Markup:
        return h.head(
            h.meta(charset="utf-8"),
            h.meta(name="viewport", content="width=device-width, initial-scale=1"),
            h.meta(name="color-scheme", content="light dark"),
            h.meta(name="robots", content="noindex"),
            h.title(f"{title} · {self.settings.title}"),
            h.link(rel="icon", href=self.url(address("icon.svg")), type="image/svg+xml"),
            h.link(rel="stylesheet", href=self.url(address("dashboard.css"))),
            h.script(src=self.url(address("dashboard.js")), defer=True),
        )

    def _header(self, at: str) -> Markup:
        links = [
            h.li(h.a(name, href=self.url(path), aria_current="page" if path == at else None))
            for path, name in _PAGES
        ]
        known = self.visit.visitor is not None
        return h.header(
            h.div(
                h.a(h.span("⇥", class_="sign", aria_hidden="true"), self.settings.title,
                    href=self.url("/"), class_="brand"),
                h.nav(h.ul(links), aria_label="Pages") if known else None,
                self._who() if known else None,
                class_="bar",
            )
        )  # fmt: skip

    def _who(self) -> Markup:
        visitor = self.visit.visitor
        assert visitor is not None  # noqa: S101 - for the type
        role, may = ("operator", "may change") if self.may_change else ("read-only", "may look")
        sign_out = h.button("Sign out", type="submit", class_="quiet")
        return h.div(
            h.span(h.bdi(visitor.name), h.span(role, class_="role", title=may), class_="visitor"),
            self.post("/logout", sign_out) if self.visit.can_sign_out else None,
            class_="who",
        )


def heading(title: Child, *beside: Child, under: Child = None) -> Markup:
    """The title of a page, with its actions next to it."""
    return h.div(
        h.div(h.h1(title), h.p(under, class_="under") if under is not None else None),
        h.div(*beside, class_="actions") if beside else None,
        class_="heading",
    )


def panel(title: Child, *content: Child, note: Child = None, id: str | None = None) -> Markup:  # noqa: A002 - HTML's word
    return h.section(
        h.div(h.h2(title), h.p(note, class_="note") if note is not None else None, class_="title"),
        *content,
        class_="panel",
        id=id,
    )
