"""One engine, one outbox, one factory of sessions for the process."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import Contract, Outbox

from .settings import settings

engine = create_async_engine(settings.database_url, pool_pre_ping=True)
# No event without the id of the request that it comes from.
outbox = Outbox(contract=Contract(required=("request_id",)))
Session = outbox.async_sessionmaker(engine, expire_on_commit=False)
