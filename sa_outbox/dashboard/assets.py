"""The pages' three files, read once; their URLs change when they do."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.requests import Request

TYPES: Final = {
    "dashboard.css": "text/css",
    "dashboard.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}


@cache
def content(name: str) -> bytes:
    return files(__name__.rpartition(".")[0]).joinpath("static", name).read_bytes()


@cache
def address(name: str) -> str:
    return f"/static/{name}?v={sha256(content(name)).hexdigest()[:12]}"


async def asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in TYPES:
        raise HTTPException(404)
    # Public, even without signing in: nothing can be learned from it.
    headers = {"Cache-Control": "public, max-age=86400"}
    return Response(content(name), media_type=TYPES[name], headers=headers)
