"""orders"""

import sqlalchemy as sa
from alembic import op

revision = "a1"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "orders",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("customer", sa.String(), nullable=False),
    )
    op.create_table("outbox_notes", sa.Column("id", sa.Integer(), primary_key=True))


def downgrade() -> None:
    op.drop_table("outbox_notes")
    op.drop_table("orders")
