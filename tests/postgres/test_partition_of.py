"""SQL and Python agree on the partition of an event, whatever its key."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from sa_outbox.consumer.position.partition import partition_of
from sa_outbox.sql.log import listener_partitions

KEYS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
PARTITION = listener_partitions.partition_of(
    "CAST(:key AS text)", ":position", "CAST(:count AS bigint)"
)
ASK = text(f"SELECT {PARTITION}")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    cases=st.lists(
        st.tuples(st.none() | KEYS, st.integers(1, 2**63 - 1), st.integers(1, 256)), min_size=1
    )
)
def test_sql_and_python_agree_on_the_partition(
    shared_engine: Engine, cases: list[tuple[str | None, int, int]]
) -> None:
    with shared_engine.connect() as connection:
        for key, position, count in cases:
            values = {"key": key, "position": position, "count": count}
            assert connection.execute(ASK, values).scalar() == partition_of(key, position, count)
