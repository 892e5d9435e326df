"""index orders by customer"""

from alembic import op

revision = "a2"
down_revision = "a1"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_orders_customer", "orders", ["customer"])


def downgrade() -> None:
    op.drop_index("ix_orders_customer", "orders")
