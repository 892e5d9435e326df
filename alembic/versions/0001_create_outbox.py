"""create outbox"""

from alembic import context, op

from sa_outbox import migrations

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    names = context.config.attributes["names"]
    migrations.upgrade(op, since=0, to=1, schema=names.schema, prefix=names.prefix)


def downgrade() -> None:
    names = context.config.attributes["names"]
    migrations.downgrade(op, since=1, to=0, schema=names.schema, prefix=names.prefix)
