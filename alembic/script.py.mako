"""${message}"""

from alembic import context, op
from sa_outbox import migrations

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    names = context.config.attributes["names"]
    since, to = int(down_revision or 0), int(revision)
    migrations.upgrade(op, since=since, to=to, schema=names.schema, prefix=names.prefix)


def downgrade() -> None:
    names = context.config.attributes["names"]
    since, to = int(revision), int(down_revision or 0)
    migrations.downgrade(op, since=since, to=to, schema=names.schema, prefix=names.prefix)
