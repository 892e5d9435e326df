"""Reading a form: limited in size, fields by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from starlette.requests import Request

FORM_TOKEN: Final = "form_token"  # noqa: S105 - the name of a field
MAX_FIELDS: Final = 600
"""A page of rows to select from, plus the form's other fields."""
_TYPE: Final = "application/x-www-form-urlencoded"


class Form(Mapping[str, str]):
    """The last value of a repeated field; ``all`` has every value."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._pairs = pairs
        self._last = dict(pairs)

    def __getitem__(self, name: str) -> str:
        return self._last[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._last)

    def __len__(self) -> int:
        return len(self._last)

    def all(self, name: str) -> list[str]:
        return [value for each, value in self._pairs if each == name]


async def read_form(request: Request, most_bytes: int) -> Form:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _TYPE:
        raise HTTPException(415, f"a form is expected, as {_TYPE}")
    read = bytearray()
    async for chunk in request.stream():
        read += chunk
        if len(read) > most_bytes:
            raise HTTPException(413, f"more than {most_bytes:,} bytes were sent")
    try:
        # Empty fields matter: a search with an empty filter is a search without that filter.
        pairs = parse_qsl(
            read.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MAX_FIELDS,
        )
    except ValueError as error:
        raise HTTPException(400, "the form can't be read") from error
    return Form(pairs)
