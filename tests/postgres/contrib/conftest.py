"""What a program in a framework has committed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Engine, func, select

from sa_outbox import Outbox


@pytest.fixture
def committed(engine: Engine) -> Callable[[], int]:
    """How many events there are, as others see it."""

    def count() -> int:
        with engine.connect() as connection:
            statement = select(func.count()).select_from(Outbox().tables.outbox)
            return connection.scalars(statement).one()

    return count
