"""Every route. GET shows, POST changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.routing import Route, Router
from starlette.websockets import WebSocketClose

from .assets import asset
from .routes.audit import AuditAnswers
from .routes.catalogue import CatalogueAnswers
from .routes.crons import CronAnswers
from .routes.dead_letter_actions import ResolvingAnswers
from .routes.dead_letters import DeadLetterAnswers
from .routes.deliveries import DeliveryAnswers
from .routes.endpoints import EndpointAnswers
from .routes.listener_actions import SteeringAnswers
from .routes.listeners import ListenerAnswers
from .routes.overview import LookingAnswers
from .routes.sign_in import SigningIn

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from starlette.types import Receive, Scope, Send

    from .routes.reply import DashboardParts

_LETTER = "/dead-letters/{id:int}"


def router(
    dashboard: DashboardParts, running: Callable[[], AbstractAsyncContextManager[None]]
) -> Router:
    """*running*: what surrounds the requests, from the start of a standalone server to its end."""
    looking = LookingAnswers(dashboard)
    listeners = ListenerAnswers(dashboard)
    steering = SteeringAnswers(dashboard)
    deliveries = DeliveryAnswers(dashboard)
    letters = DeadLetterAnswers(dashboard)
    resolving = ResolvingAnswers(dashboard)
    crons = CronAnswers(dashboard)
    endpoints = EndpointAnswers(dashboard)
    audit = AuditAnswers(dashboard)
    catalogue = CatalogueAnswers(dashboard)
    signing_in = SigningIn(dashboard)
    return Router(
        [
            Route("/", looking.overview),
            Route("/live", looking.live),
            Route("/events", looking.events),
            Route("/events/{event_id}", looking.event),
            Route("/listeners", listeners.all),
            Route("/listener", listeners.one),
            Route("/listener/pause", steering.pause, methods=["POST"]),
            Route("/listener/resume", steering.resume, methods=["POST"]),
            Route("/listener/confirm", steering.confirm, methods=["POST"]),
            Route("/listener/move", steering.move, methods=["POST"]),
            Route("/deliveries", deliveries.all),
            Route("/deliveries/confirm", deliveries.confirm, methods=["POST"]),
            Route("/deliveries/act", deliveries.act, methods=["POST"]),
            Route("/dead-letters", letters.all),
            Route(_LETTER, letters.one),
            Route("/dead-letters/confirm", resolving.confirm, methods=["POST"]),
            Route("/dead-letters/act", resolving.act, methods=["POST"]),
            Route(f"{_LETTER}/edit", resolving.edit),
            Route(f"{_LETTER}/edit", resolving.save, methods=["POST"]),
            Route(f"{_LETTER}/compare", resolving.compare, methods=["POST"]),
            Route(f"{_LETTER}/edit-again", resolving.edit_again, methods=["POST"]),
            Route("/crons", crons.all),
            Route("/crons/confirm", crons.confirm, methods=["POST"]),
            Route("/crons/run", crons.run, methods=["POST"]),
            Route("/endpoints", endpoints.all),
            Route("/endpoint", endpoints.one),
            Route("/endpoint/enable", endpoints.enable, methods=["POST"]),
            Route("/endpoint/disable", endpoints.disable, methods=["POST"]),
            Route("/catalogue", catalogue.all),
            Route("/catalogue/type", catalogue.one),
            Route("/audit", audit.audit),
            Route("/durations", audit.durations),
            Route("/login", signing_in.show),
            Route("/login", signing_in.sign_in, methods=["POST"]),
            Route("/logout", signing_in.sign_out, methods=["POST"]),
            Route("/static/{name}", asset),
        ],
        redirect_slashes=False,
        default=_nothing,
        lifespan=lambda _: running(),
    )


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        raise HTTPException(404)
    await WebSocketClose()(scope, receive, send)
