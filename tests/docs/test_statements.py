"""SQL that a page shows runs on the tables, statement by statement, on a database of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import URL, create_engine

from sa_outbox import schema
from sa_outbox.settings import Names

from .test_code_blocks import PAGES, blocks, name_of


def statements(page: Path) -> list[str]:
    text = "\n".join("\n".join(each.lines) for each in blocks(page) if each.language == "sql")
    return [each.strip() for each in text.split(";") if each.strip()]


@pytest.mark.parametrize("page", [page for page in PAGES if statements(page)], ids=name_of)
def test_statements_on_the_page_run(page: Path, new_database: Callable[[], URL]) -> None:
    engine = create_engine(new_database().set(drivername="postgresql+psycopg"))
    try:
        with engine.begin() as connection:
            schema.migrate(connection, Names())
        for statement in statements(page):
            with engine.begin() as connection:
                connection.exec_driver_sql(statement)
    finally:
        engine.dispose()
