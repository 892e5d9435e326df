"""Which records may be under way together: one record batch of a partition, one place of a key."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.relay.kafka.link import partition_of
from sa_outbox.relay.kafka.packs import OVERHEAD, Pack, Record, next_packs

LIMIT = 10 * OVERHEAD


def record(
    index: int, lane: str | None, partition: int = 0, *, size: int = 0, most: int = 100
) -> Record:
    return Record(index, lane, ("orders", partition), None, b"x" * size, [], OVERHEAD + size, most)


RECORDS = st.lists(
    st.tuples(
        st.sampled_from([None, "a", "b", "c"]),
        st.integers(0, 2),
        st.integers(0, 2 * LIMIT),
        st.integers(1, 5),
    ),
    max_size=30,
).map(
    lambda drawn: [
        record(index, lane, partition, size=size, most=most)
        for index, (lane, partition, size, most) in enumerate(drawn)
    ]
)


@given(RECORDS)
def test_rounds_hold_each_record_once_and_keep_every_order(records: list[Record]) -> None:
    waiting, sent, rounds = records, [], 0
    while waiting:
        packs, waiting = next_packs(waiting, limit=LIMIT)
        assert len({pack.place for pack in packs}) == len(packs), "one of a partition"
        homes: dict[str, tuple[str, int]] = {}
        for pack in packs:
            assert pack.records
            assert len(pack.records) == 1 or sum(each.size for each in pack.records) <= LIMIT
            assert len(pack.records) <= min(each.most for each in pack.records) or (
                len(pack.records) == 1
            )
            for each in pack.records:
                assert each.place == pack.place
                assert each.lane is None or homes.setdefault(each.lane, pack.place) == pack.place
            sent += pack.records
        rounds += 1
        assert rounds <= len(records), "each round has the first of those that wait"
    assert sorted(each.index for each in sent) == list(range(len(records)))
    for partition in range(3):
        order = [each.index for each in sent if each.place[1] == partition]
        assert order == sorted(order), "of a partition"


@given(RECORDS)
def test_of_a_key_nothing_is_sent_before_the_round_of_the_one_ahead(records: list[Record]) -> None:
    waiting, last = records, dict[str, int]()
    while waiting:
        packs, waiting = next_packs(waiting, limit=LIMIT)
        for pack in packs:
            for each in pack.records:
                if each.lane is not None:
                    assert last.get(each.lane, -1) < each.index
                    last[each.lane] = each.index


def test_a_batch_that_fits_goes_at_once() -> None:
    packs, rest = next_packs([record(n, f"k{n}", n % 3) for n in range(9)], limit=LIMIT)

    assert [[each.index for each in pack.records] for pack in packs] == [
        [0, 3, 6],
        [1, 4, 7],
        [2, 5, 8],
    ]
    assert rest == []


def test_a_key_in_two_places_waits_for_the_first() -> None:
    packs, rest = next_packs(
        [record(0, "a", 0), record(1, "a", 1), record(2, "b", 1), record(3, "c", 0)], limit=LIMIT
    )

    assert [[each.index for each in pack.records] for pack in packs] == [[0, 3]]
    assert [each.index for each in rest] == [1, 2], "and holds back its partition"


@pytest.mark.parametrize(("count", "most"), [(1, 1), (2, 1), (5, 2), (500, 250)])
def test_a_refused_batch_is_halved(count: int, most: int) -> None:
    records = [record(n, None, most=1000) for n in range(count)]

    assert Pack(("orders", 0), records, 0, 1).halve() is records
    assert {each.most for each in records} == {most}


@given(st.binary(max_size=40), st.integers(1, 50))
def test_a_key_has_the_partition_that_other_clients_choose(key: bytes, count: int) -> None:
    partitions = list(range(count))

    assert partition_of(key, partitions) == DefaultPartitioner()(key, partitions, partitions)
