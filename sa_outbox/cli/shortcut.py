"""The short way to the overview: without SQLAlchemy, and mostly without a driver.

Most of the time of ``sa-outbox status`` would be the import of these. The questions are plain text,
the same that everybody asks, and what is made of the answers is, too (``operations/overview.py``);
only the connection is another.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from sa_outbox.sql.overview import MOMENTS, all_in_one, questions

from .wire import Address, Declined, ask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sa_outbox.database_url import PlainUrl
    from sa_outbox.table_names import Names

    Answers = dict[str, Sequence[Mapping[str, Any]]]


def answers(url: PlainUrl, names: Names) -> Answers | None:
    """Ask the database at *url*. None: it refuses; the long way can say what mends that."""
    # What the environment has to say of connecting is the driver's to know.
    if url.has_options or not url.user or any(name.startswith("PG") for name in os.environ):
        return by_driver(url, names)
    try:
        return by_wire(url, names)
    except Declined:
        return by_driver(url, names)


def by_wire(url: PlainUrl, names: Names) -> Answers:
    """With a socket alone. Raises :class:`Declined`."""
    import json  # noqa: PLC0415 - each way has its own imports

    address = Address(url.host, url.port, url.user, url.password, url.database)
    said = ask(address, all_in_one(names))
    try:
        found: Answers = json.loads(said)
        return {name: [_with_times(row) for row in rows] for name, rows in found.items()}
    except ValueError as error:
        raise Declined("no JSON, or a time that Python does not know") from error


def _with_times(row: Mapping[str, Any]) -> dict[str, Any]:
    from datetime import datetime  # noqa: PLC0415 - the same

    return {
        name: datetime.fromisoformat(value) if value is not None and name in MOMENTS else value
        for name, value in row.items()
    }


def by_driver(url: PlainUrl, names: Names) -> Answers | None:
    import asyncio  # noqa: PLC0415 - the same

    return asyncio.run(_by_driver(url.url, names))


async def _by_driver(url: str, names: Names) -> Answers | None:
    import asyncpg  # noqa: PLC0415 - the same

    # In one transaction and without a name for any statement: also behind a pooler.
    connection = await asyncpg.connect(url, statement_cache_size=0)
    try:
        async with connection.transaction(isolation="read_committed", readonly=True):
            return {name: await connection.fetch(each) for name, each in questions(names).items()}
    except asyncpg.PostgresError:
        return None
    finally:
        await connection.close()
