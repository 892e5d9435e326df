"""A small shop in every framework: what a request leaves in the database, and when.

``POST /orders/N`` adds an event and answers. With 13 it answers 404 by an exception, with 14 it
raises, with 15 its commit fails.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from dishka import AsyncContainer, Container, make_async_container, make_container
from dishka.integrations import fastapi as dishka_fastapi
from fastapi import FastAPI, HTTPException
from flask import Flask, abort
from httpx2 import ASGITransport, AsyncClient
from sqlalchemy import Engine, text
from sqlalchemy.exc import SADeprecationWarning
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.applications import Starlette
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from sa_outbox import AsyncOutboxSession, Outbox, OutboxSession
from sa_outbox.contrib.asgi import EventContextMiddleware
from sa_outbox.contrib.dishka import RequestProvider
from sa_outbox.contrib.fastapi import session_of
from sa_outbox.contrib.flask import RequestSessions

with warnings.catch_warnings():
    # Litestar imports Advanced Alchemy, which is older than the SQLAlchemy here.
    warnings.simplefilter("ignore", SADeprecationWarning)
    from advanced_alchemy.extensions.litestar import (
        SQLAlchemyAsyncConfig,
        SQLAlchemyPlugin,
        SQLAlchemySyncConfig,
    )
    from litestar import Litestar, post
    from litestar.di import NamedDependency
    from litestar.exceptions import NotFoundException
    from litestar.params import FromPath

    from sa_outbox.contrib.litestar import OutboxPlugin

NOT_FOUND, BROKEN, NOT_COMMITTED = 13, 14, 15
DOUBTFUL = text("INSERT INTO doubtful VALUES (1), (1)")  # unique, but only at the commit


@dataclass
class Program:
    outbox: Outbox
    engine: Engine
    async_engine: AsyncEngine


def check(number: int, not_found: Exception) -> None:
    if number == NOT_FOUND:
        raise not_found
    if number == BROKEN:
        raise ValueError("unlucky too")


async def place(session: AsyncOutboxSession, number: int, not_found: Exception) -> int:
    session.add_event("order.placed", {"n": number})
    await session.flush()
    if number == NOT_COMMITTED:
        await session.execute(DOUBTFUL)
    check(number, not_found)
    return number


def place_sync(session: OutboxSession, number: int, not_found: Exception) -> int:
    session.add_event("order.placed", {"n": number})
    session.flush()
    if number == NOT_COMMITTED:
        session.execute(DOUBTFUL)
    check(number, not_found)
    return number


def fastapi_async(program: Program) -> Any:
    sessions = program.outbox.async_sessionmaker(program.async_engine)
    app = FastAPI()
    app.add_middleware(EventContextMiddleware)

    session_dependency: Any = session_of(sessions)

    async def order(number: int, session: Any = session_dependency) -> int:
        return await place(session, number, HTTPException(404))

    app.post("/orders/{number}")(order)
    return app


def fastapi_sync(program: Program) -> Any:
    sessions = program.outbox.sessionmaker(program.engine)
    app = FastAPI()
    app.add_middleware(EventContextMiddleware)

    session_dependency: Any = session_of(sessions)

    def order(number: int, session: Any = session_dependency) -> int:
        return place_sync(session, number, HTTPException(404))

    app.post("/orders/{number}")(order)
    return app


def starlette_async(program: Program) -> Any:
    sessions = program.outbox.async_sessionmaker(program.async_engine)

    async def order(request: Request) -> JSONResponse:
        async with sessions.begin() as session:
            number = int(request.path_params["number"])
            return JSONResponse(await place(session, number, StarletteHTTPException(404)))

    return _starlette(order)


def starlette_sync(program: Program) -> Any:
    sessions = program.outbox.sessionmaker(program.engine)

    def order(request: Request) -> JSONResponse:
        with sessions.begin() as session:
            number = int(request.path_params["number"])
            return JSONResponse(place_sync(session, number, StarletteHTTPException(404)))

    return _starlette(order)


def _starlette(order: Callable[..., Any]) -> Any:
    app = Starlette(routes=[Route("/orders/{number}", order, methods=["POST"])])
    app.add_middleware(EventContextMiddleware)
    return app


def litestar_async(program: Program) -> Any:
    @post("/orders/{number:int}")
    async def order(number: FromPath[int], session: NamedDependency[AsyncOutboxSession]) -> int:
        return await place(session, number, NotFoundException())

    sessions = program.outbox.async_sessionmaker(program.async_engine)
    return Litestar([order], plugins=[OutboxPlugin(sessions=sessions)])


def litestar_sync(program: Program) -> Any:
    @post("/orders/{number:int}", sync_to_thread=True)
    def order(number: FromPath[int], session: NamedDependency[OutboxSession]) -> int:
        return place_sync(session, number, NotFoundException())

    sessions = program.outbox.sessionmaker(program.engine)
    return Litestar([order], plugins=[OutboxPlugin(sessions=sessions)])


def alchemy_async(program: Program) -> Any:
    @post("/orders/{number:int}")
    async def order(number: FromPath[int], db_session: NamedDependency[AsyncOutboxSession]) -> int:
        return await place(db_session, number, NotFoundException())

    config = SQLAlchemyAsyncConfig(
        engine_instance=program.async_engine,
        session_maker=program.outbox.async_sessionmaker(program.async_engine),
    )
    return Litestar([order], plugins=[SQLAlchemyPlugin(config), OutboxPlugin(alchemy=config)])


def alchemy_alone(program: Program) -> Any:
    """With its own autocommit: not one of the shops, but why ours is needed."""

    @post("/orders/{number:int}")
    async def order(number: FromPath[int], db_session: NamedDependency[AsyncOutboxSession]) -> int:
        return await place(db_session, number, NotFoundException())

    config = SQLAlchemyAsyncConfig(
        engine_instance=program.async_engine,
        session_maker=program.outbox.async_sessionmaker(program.async_engine),
        before_send_handler="autocommit",
    )
    return Litestar([order], plugins=[SQLAlchemyPlugin(config)])


def alchemy_sync(program: Program) -> Any:
    @post("/orders/{number:int}", sync_to_thread=True)
    def order(number: FromPath[int], db_session: NamedDependency[OutboxSession]) -> int:
        return place_sync(db_session, number, NotFoundException())

    config = SQLAlchemySyncConfig(
        engine_instance=program.engine,
        session_maker=program.outbox.sessionmaker(program.engine),
        before_send_handler="autocommit",
    )
    return Litestar([order], plugins=[OutboxPlugin(alchemy=[config]), SQLAlchemyPlugin(config)])


def dishka_async(program: Program) -> Any:
    sessions = program.outbox.async_sessionmaker(program.async_engine)
    app = FastAPI()
    app.add_middleware(EventContextMiddleware)

    @app.post("/orders/{number}")
    @dishka_fastapi.inject
    async def order(number: int, session: dishka_fastapi.FromDishka[AsyncOutboxSession]) -> int:
        async with session.begin():
            return await place(session, number, HTTPException(404))

    container: AsyncContainer = make_async_container(RequestProvider(program.outbox, sessions))
    dishka_fastapi.setup_dishka(container, app)
    return app


def dishka_sync(program: Program) -> Any:
    sessions = program.outbox.sessionmaker(program.engine)
    container: Container = make_container(RequestProvider(program.outbox, sessions))
    app = FastAPI()
    app.add_middleware(EventContextMiddleware)

    def order(number: int) -> int:
        with container() as scope:
            session = scope.get(OutboxSession)
            with session.begin():
                return place_sync(session, number, HTTPException(404))

    app.post("/orders/{number}")(order)
    return app


def flask_sync(program: Program) -> Flask:
    app = Flask(__name__)
    sessions = RequestSessions(program.outbox.sessionmaker(program.engine), app)

    @app.post("/orders/<int:number>")
    def order(number: int) -> str:
        if number == NOT_FOUND:
            sessions.current().add_event("order.placed", {"n": number})
            abort(404)
        return str(place_sync(sessions.current(), number, ValueError()))

    return app


SHOPS: dict[str, Callable[[Program], Any]] = {
    each.__name__: each
    for each in (
        *(fastapi_async, fastapi_sync, starlette_async, starlette_sync),
        *(litestar_async, litestar_sync, alchemy_async, alchemy_sync),
        *(dishka_async, dishka_sync, flask_sync),
    )
}


@dataclass
class Shop:
    """A client, which looks at the database when a response begins."""

    app: Any
    look: Callable[[], int]
    seen: list[int] = field(default_factory=list)
    """How many events were committed then: one number for each response."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        if isinstance(self.app, Litestar):  # the others have nothing to start
            async with self.app.lifespan():
                yield
        else:
            yield

    async def post(self, number: int, **headers: str) -> int:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(self.app, Flask):
            return self._post_wsgi(number, sent)
        transport = ASGITransport(self._watched, raise_app_exceptions=False)
        async with AsyncClient(transport=transport, base_url="http://shop") as client:
            return (await client.post(f"/orders/{number}", headers=sent)).status_code

    async def _watched(self, scope: Any, receive: Any, send: Callable[[Any], Any]) -> None:
        async def look_and_send(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.seen.append(self.look())
            await send(message)

        await self.app(scope, receive, look_and_send)

    def _post_wsgi(self, number: int, headers: dict[str, str]) -> int:
        inner = self.app.wsgi_app

        def watched(environ: Any, start_response: Callable[..., Any]) -> Any:
            def look_and_start(*args: Any) -> Any:
                self.seen.append(self.look())
                return start_response(*args)

            return inner(environ, look_and_start)

        self.app.wsgi_app = watched
        try:
            return int(
                self.app.test_client().post(f"/orders/{number}", headers=headers).status_code
            )
        finally:
            self.app.wsgi_app = inner
