"""create shop"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "orders",
        sa.Column("id", sa.Integer(), sa.Identity(always=True), nullable=False),
        sa.Column("email", sa.String(), nullable=False),
        sa.Column("product", sa.String(), nullable=False),
        sa.Column("total_cents", sa.Integer(), nullable=False),
        sa.Column(
            "placed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("cancelled_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_orders")),
    )
    op.create_table(
        "invoices",
        sa.Column("number", sa.Integer(), sa.Identity(always=True), nullable=False),
        sa.Column("order_id", sa.Integer(), nullable=False),
        sa.Column("total_cents", sa.Integer(), nullable=False),
        sa.Column("void", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["order_id"], ["orders.id"], name=op.f("fk_invoices_order_id")),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_invoices")),
        sa.UniqueConstraint("order_id", name=op.f("uq_invoices_order_id")),
    )


def downgrade() -> None:
    op.drop_table("invoices")
    op.drop_table("orders")
