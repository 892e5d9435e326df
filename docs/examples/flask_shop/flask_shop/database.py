"""One engine, one outbox, one factory of sessions for the process."""

from __future__ import annotations

import os

from sqlalchemy import create_engine, make_url

from sa_outbox import Outbox

url = make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+psycopg")
engine = create_engine(url, pool_pre_ping=True)
outbox = Outbox()
Session = outbox.sessionmaker(engine)
