"""For programs inside a framework. Nothing else in the package imports it.

======================  ============================================================================
``asgi.py``             a consumer beside an ASGI application, and its requests as the context of
                        events: Starlette, FastAPI, Litestar
``fastapi.py``          a dependency: a session that is committed before the response is sent
``litestar.py``         a plugin: consumer, context, sessions
``litestar_commit.py``  commits the sessions of Advanced Alchemy's plugin
``flask.py``            the session of a request, and its context
``dishka.py``           providers of sessions, for requests and for handlers
``request_ids.py``      the ids of a request, without what can't be stored
======================  ============================================================================

Imports ``consumer`` and the rooms below it. Each module knows the one framework that it is
named for, and says how to install it; ``asgi.py`` knows none. docs/fastapi.md, docs/starlette.md,
docs/litestar.md, docs/flask.md, docs/dishka.md, docs/sqlmodel.md and docs/advanced-alchemy.md show
what a program writes with each.
"""
