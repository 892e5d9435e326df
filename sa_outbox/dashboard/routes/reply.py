"""What every response needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from starlette.responses import HTMLResponse, RedirectResponse

from sa_outbox.operations.operator import Operator

from .. import query
from ..guard import visit_of
from ..views.dead_letter_actions import LONGEST_WHY
from ..views.layout import Frame

if TYPE_CHECKING:
    from starlette.requests import Request

    from sa_outbox.outbox import Outbox

    from ..access import Keys
    from ..database import Database
    from ..guard import Guard
    from ..history import History
    from ..live import Streams
    from ..mask import Masks
    from ..settings import DashboardSettings


class DashboardParts(Protocol):
    """What routes use of the dashboard. They do not know the application that has them."""

    outbox: Outbox
    settings: DashboardSettings
    database: Database
    masks: Masks
    history: History
    streams: Streams
    keys: Keys
    guard: Guard


class Answers:
    def __init__(self, dashboard: DashboardParts) -> None:
        self.dashboard = dashboard
        self.read: Final = dashboard.database.read
        self.write: Final = dashboard.database.write

    @property
    def channel(self) -> str:
        """The channel on which consumers are notified of a change."""
        return self.dashboard.outbox.settings.names.notify_channel

    def frame(self, request: Request) -> Frame:
        return Frame(self.dashboard.settings, visit_of(request))


def operator_of(request: Request) -> Operator:
    """Who posts this, and why, for the audit."""
    visit = visit_of(request)
    assert visit.visitor is not None  # noqa: S101 - for the type: a POST has one
    why = query.typed(visit.form, "why", longest=LONGEST_WHY)
    return Operator(who=visit.visitor.name, why=why)


def page(text: str, status: int = 200) -> HTMLResponse:
    return HTMLResponse(text, status)


def lead_to(address: str) -> RedirectResponse:
    """After a change: reloading the page does not repeat it."""
    return RedirectResponse(address, 303)
