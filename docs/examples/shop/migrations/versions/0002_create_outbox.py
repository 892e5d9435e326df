"""create outbox"""

from __future__ import annotations

from alembic import op

from sa_outbox import migrations

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    migrations.upgrade(op, since=0, to=1)


def downgrade() -> None:
    migrations.downgrade(op, since=1, to=0)
