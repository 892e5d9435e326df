"""The error page, and the sign-in page."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from .. import html as h
from ..guard import VISIT, Visit
from .layout import Frame

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from ..settings import DashboardSettings


def fault_page(
    scope: MutableMapping[str, Any], settings: DashboardSettings, status: int, what: str
) -> str:
    base = str(scope.get("root_path", "")).rstrip("/")
    frame = Frame(settings, scope.get(VISIT) or Visit(base))
    phrase = HTTPStatus(status).phrase
    said = what if what != phrase else "There is nothing here."
    return frame.page(
        phrase,
        h.div(
            h.p(str(status), class_="number"),
            h.h1(phrase),
            h.p(said[:1].upper() + said[1:], role="alert"),
            h.p(h.a("To the overview", href=frame.url("/"))),
            class_="fault",
        ),
    )


def login_page(frame: Frame, goes_to: str, *, refused: bool = False, name: str = "") -> str:
    wrong = h.p("That is not the token.", class_="wrong", role="alert", id="wrong")
    return frame.page(
        "Sign in",
        h.form(
            h.h1("Sign in"),
            wrong if refused else None,
            h.label("Your name", h.input_(name="name", value=name, autocomplete="username",
                    maxlength=100, required=True)),
            h.p("Recorded with what you replay, discard or pause.", class_="hint"),
            h.label("Token", h.input_(name="token", type="password",
                    autocomplete="current-password", required=True,
                    aria_invalid="true" if refused else None,
                    aria_describedby="wrong" if refused else None)),
            h.input_(type="hidden", name="next", value=goes_to),
            h.button("Sign in", type="submit", class_="main"),
            method="post",
            action=frame.url("/login"),
            class_="login panel",
        ),
    )  # fmt: skip
