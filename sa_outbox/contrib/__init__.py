"""For programs inside a framework. Nothing else in the package imports it.

===========  =====================================================================================
``asgi.py``  a consumer beside an ASGI application, and its requests as the context of events:
             Starlette, FastAPI, Litestar
===========  =====================================================================================

Imports no framework: docs/fastapi.md, docs/litestar.md, docs/flask.md and docs/dishka.md show what
a program writes with each.
"""
