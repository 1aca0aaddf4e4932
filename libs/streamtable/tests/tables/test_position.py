from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtable.base.event_time import NO_TIME, InputTime
from streamtable.errors import StoreCorrupted
from streamtable.graph.group import NAMED_TABLE_CHARACTERS_MAX, NAMED_TABLES_MAX
from streamtable.tables.kept import KeptRecord, Seen
from streamtable.tables.position import LocalPosition, TablePosition


@given(changelog=st.integers(0, 2**62), exact=st.booleans())
def test_a_table_position_survives_its_way_through_the_metadata(changelog: int, exact: bool) -> None:  # noqa: FBT001 - hypothesis gives by name
    assert TablePosition.decode(TablePosition(changelog, exact).encode()) == TablePosition(changelog, exact)


def test_the_positions_of_named_tables_survive_it_too() -> None:
    position = TablePosition(4, exact=True, tables={"ids": 0, "handled": 2**62})
    assert TablePosition.decode(position.encode()) == position


@given(times=st.tuples(st.integers(NO_TIME, 2**48), st.integers(NO_TIME, 2**48)))
def test_the_event_time_survives_it_too(times: tuple[int, int]) -> None:
    position = TablePosition(4, exact=True, time=InputTime(*times))
    assert TablePosition.decode(position.encode()) == position


@pytest.mark.parametrize("time", ["5", "[1]", "[1,true]", "[-2,5]", '["1",2]', "[1.5,2]", "null"])
def test_an_unreadable_event_time_counts_as_none_and_the_position_as_read(time: str) -> None:
    metadata = f'{{"changelog":4,"exact":true,"time":{time}}}'
    assert TablePosition.decode(metadata) == TablePosition(4, exact=True)


def test_an_event_time_of_a_later_version_that_adds_to_it_is_read() -> None:
    metadata = '{"changelog":4,"exact":true,"time":[7,5,{"new":1}]}'
    assert TablePosition.decode(metadata) == TablePosition(4, exact=True, time=InputTime(7, 5))


def test_metadata_of_the_version_before_named_tables_is_a_position_without_them() -> None:
    assert TablePosition.decode('{"changelog":4,"exact":true}') == TablePosition(4, exact=True)
    assert TablePosition(4, exact=True).encode() == '{"changelog":4,"exact":true}'


def test_the_metadata_of_as_many_named_tables_as_there_may_be_stays_below_a_quarter_of_what_kafka_takes() -> (
    None
):
    names = [f"{number:0>{NAMED_TABLE_CHARACTERS_MAX}}" for number in range(NAMED_TABLES_MAX)]
    metadata = TablePosition(
        2**63 - 1, exact=False, tables=dict.fromkeys(names, 2**63 - 1), time=InputTime(10**15, 10**15)
    ).encode()
    assert len(metadata) < 4096 / 4


def test_the_tables_that_were_left_survive_it_too_and_unreadable_ones_count_as_none() -> None:
    left = {"table": Seen(0), "totals": Seen(2**62, "12345678", lacks=True)}
    record = KeptRecord({"ids": "abcdefgh"}, left, {"ids": "ids by a function"}, "2", more=True)
    position = TablePosition(4, exact=True, tables={"ids": 0}, record=record)
    assert TablePosition.decode(position.encode()) == position
    metadata = '{"changelog":4,"exact":true,"left":{"totals":[-1,"",true],"sums":5,"counts":["1",2,true],"n":[1,""],"m":[1,"",0]},"kept":[1]}'
    assert TablePosition.decode(metadata) == TablePosition(4, exact=True)


@pytest.mark.parametrize(
    "metadata",
    ["", '{"changelog":1,"exact":true,"tables":5}', '{"changelog":1,"exact":true,"tables":{"ids":-1}}',
     '{"changelog":1,"exact":true,"tables":{"ids":true}}', "x", "5", "[]", "{}", '{"changelog":-1,"exact":true}', '{"changelog":"1","exact":true}',
     '{"changelog":1}', '{"changelog":1,"exact":1}', '{"changelog":1.5,"exact":true}', "\ud800"],
)  # fmt: skip
def test_metadata_of_another_tool_is_no_position(metadata: str) -> None:
    assert TablePosition.decode(metadata) is None


def test_a_local_position_survives_its_way_through_the_store() -> None:
    position = LocalPosition(7, "id", 12.5, {"in": 3}, partitions=4, whole=False)
    assert LocalPosition.decode(position.encode()) == position
    prefixed = replace(position, prefix_header="id")
    assert LocalPosition.decode(prefixed.encode()) == prefixed


def test_an_earlier_version_reads_a_local_position_without_a_header_of_prefixes() -> None:
    assert b"prefix_header" not in LocalPosition(7, "id", 12.5).encode()


@pytest.mark.parametrize(
    "checkpoint",
    [b"", b"\xff", b"5", b"[]", b"{}", b'{"changelog":1,"topic_id":"x","current_at":0,"more":1}',
     b'{"changelog":"1","topic_id":"x","current_at":0}', b'{"changelog":1,"topic_id":"x","current_at":null}'],
)  # fmt: skip
def test_a_checkpoint_that_is_not_ours_means_a_damaged_store(checkpoint: bytes) -> None:
    with pytest.raises(StoreCorrupted):
        LocalPosition.decode(checkpoint)
