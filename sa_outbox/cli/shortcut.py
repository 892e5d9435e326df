"""The short way to the overview: by the driver alone.

Half of the time of ``sa-outbox status`` would be the import of SQLAlchemy, which has nothing to do
there: the questions are plain text. They are the same that everybody asks, and what is made of the
answers is, too (``operations/overview.py``); only the connection is another.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import asyncpg

from sa_outbox.sql.overview import questions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sa_outbox.table_names import Names


def answers(url: str, names: Names) -> dict[str, Sequence[Mapping[str, Any]]] | None:
    """Ask the database at *url*. None: it refuses; the long way can say what mends that."""
    return asyncio.run(_answers(url, names))


async def _answers(url: str, names: Names) -> dict[str, Sequence[Mapping[str, Any]]] | None:
    # In one transaction and without a name for any statement: also behind a pooler.
    connection = await asyncpg.connect(url, statement_cache_size=0)
    try:
        async with connection.transaction(isolation="read_committed", readonly=True):
            return {name: await connection.fetch(each) for name, each in questions(names).items()}
    except asyncpg.PostgresError:
        return None
    finally:
        await connection.close()
