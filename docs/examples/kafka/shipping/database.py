"""One engine, one outbox, one factory of sessions for each process."""

from __future__ import annotations

import os

from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import Outbox

url = make_url(os.environ["SHIPPING_DATABASE_URL"])
engine = create_async_engine(url.set(drivername="postgresql+asyncpg"), pool_pre_ping=True)
outbox = Outbox()
Session = outbox.async_sessionmaker(engine)
