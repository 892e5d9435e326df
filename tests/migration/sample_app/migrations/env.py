"""As `alembic init` writes it, with the one line that sa_outbox asks for."""

from __future__ import annotations

import os

from alembic import context
from shop_models import Base  # type: ignore[import-not-found]  # found by prepend_sys_path
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from sa_outbox import schema

OUTBOX_SCHEMA = os.environ.get("SHOP_OUTBOX_SCHEMA") or None
HIDE_OUTBOX = os.environ.get("SHOP_HIDE_OUTBOX", "yes") == "yes"

include_name = schema.include_name(schema=OUTBOX_SCHEMA) if HIDE_OUTBOX else None

if context.is_offline_mode():
    context.configure(dialect_name="postgresql", target_metadata=Base.metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
else:
    engine = create_engine(os.environ["SHOP_DATABASE_URL"], poolclass=NullPool)
    with engine.connect() as connection:
        context.configure(
            connection=connection,
            target_metadata=Base.metadata,
            include_schemas=OUTBOX_SCHEMA is not None,
            include_name=include_name,
        )
        with context.begin_transaction():
            context.run_migrations()
