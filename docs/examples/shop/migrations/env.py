"""Alembic's environment: one history for the tables of the shop and of the outbox."""

from __future__ import annotations

import asyncio

from alembic import context
from sqlalchemy import Connection, NullPool
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import schema
from shop.models import Base
from shop.settings import settings

# Autogenerate leaves the tables of the outbox alone.
include_name = schema.include_name()


def migrate(connection: Connection) -> None:
    context.configure(
        connection=connection, target_metadata=Base.metadata, include_name=include_name
    )
    with context.begin_transaction():
        context.run_migrations()


async def online() -> None:
    engine = create_async_engine(settings.database_url, poolclass=NullPool)
    async with engine.connect() as connection:
        await connection.run_sync(migrate)
    await engine.dispose()


def offline() -> None:
    """``alembic upgrade head --sql``."""
    context.configure(dialect_name="postgresql", target_metadata=Base.metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    offline()
else:
    asyncio.run(online())
