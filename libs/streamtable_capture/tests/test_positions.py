"""Which of two changes of a row came later."""

from typing import Any

import pytest

from streamtable.errors import DeserializationError
from streamtable_capture import DatabaseChange, DatabaseSource
from streamtable_capture.positions import beyond, position_of

SERVER, OTHER = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "00000000-1111-2222-3333-444444444444"


def binlog(file: str, pos: int, row: int = 0, **given: Any) -> DatabaseSource:
    return DatabaseSource(
        connector="mysql", file=file, pos=pos, row=row, **{"server_id": 1, "ts_ms": 1_000, **given}
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (DatabaseSource(lsn=9), DatabaseSource(lsn=10)),
        (binlog("binlog.000009", 900), binlog("binlog.000010", 4)),
        (binlog("binlog.000009", 99), binlog("binlog.000009", 100)),
        (binlog("binlog.000009", 99, 1), binlog("binlog.000009", 99, 2)),
        (binlog("b.9", 900, gtid="a:9"), binlog("b.1", 4, gtid="a:10")),
        (binlog("b.9", 900, gtid="0-1-9"), binlog("b.1", 4, gtid="0-1-10")),
        # Several servers may count in one row, as a group does whose blocks have one number each.
        (binlog("b.9", 900, gtid="a:9"), binlog("b.1", 4, gtid="a:10", server_id=2)),
        # The clock of a server may be set back, and MariaDB's times are those of statements, which may wait for others.
        (binlog("b.9", 900, gtid="0-1-9", ts_ms=2_000), binlog("b.1", 4, gtid="0-1-10")),
        (binlog("b.9", 4, 0, gtid="a:9"), binlog("b.9", 4, 1, gtid="a:9")),
        (binlog("b.9", 900, gtid="a:99"), binlog("b.1", 4, gtid="b:1", ts_ms=2_000)),
        (binlog("b.9", 900), binlog("b.1", 4, server_id=2, ts_ms=2_000)),
        (binlog("b.9", 900, gtid=f"{SERVER}:9"), binlog("b.1", 4, gtid=f"{SERVER}:10")),
        (binlog("b.9", 900, gtid=f"{OTHER}:9"), binlog("b.1", 4, gtid=f"{OTHER}:10")),
        (binlog("b.9", 900, gtid=f"{SERVER}:blue:9"), binlog("b.1", 4, gtid=f"{SERVER}:blue:10")),
        (binlog("b.9", 900, gtid=f"{SERVER}:9"), binlog("b.1", 4, gtid=f"{OTHER}:1", ts_ms=2_000)),
    ],
)
def test_a_later_change_is_beyond_an_earlier_one_and_not_the_other_way_round(
    first: DatabaseSource, second: DatabaseSource
) -> None:
    before, after = (
        position_of(DatabaseChange(op="u", source=first)),
        position_of(DatabaseChange(op="u", source=second)),
    )
    assert before is not None
    assert after is not None
    assert beyond(after, before) is True
    assert beyond(before, after) is False
    assert beyond(before, before) is False


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (binlog("b.9", 900, gtid="a:99"), binlog("b.1", 4, gtid="b:1")),
        (DatabaseSource(lsn=9), binlog("b.1", 4)),
        (binlog("b.9", 900, gtid=f"{SERVER}:9"), binlog("b.9", 990, gtid=f"{OTHER}:10")),
        # Each tag counts by itself.
        (binlog("b.9", 900, gtid=f"{SERVER}:9"), binlog("b.9", 990, gtid=f"{SERVER}:blue:3")),
        (binlog("b.9", 900, gtid=f"{SERVER}:red:9"), binlog("b.9", 990, gtid=f"{SERVER}:blue:10")),
    ],
)
def test_changes_of_two_servers_at_one_time_cannot_be_compared(
    first: DatabaseSource, second: DatabaseSource
) -> None:
    before, after = (
        position_of(DatabaseChange(op="u", source=first)),
        position_of(DatabaseChange(op="u", source=second)),
    )
    assert before is not None
    assert after is not None
    assert beyond(after, before) is None
    assert beyond(before, after) is None


@pytest.mark.parametrize("server_id", [1, 2])
@pytest.mark.parametrize("tag", ["", ":blue"])
def test_a_change_of_mysql_with_a_lower_number_and_a_later_time_cannot_be_compared(
    server_id: int, tag: str
) -> None:
    first = binlog("b.9", 900, gtid=f"{SERVER}{tag}:1000010")
    second = binlog("b.9", 990, gtid=f"{SERVER}{tag}:501", server_id=server_id, ts_ms=2_000)
    before, after = (position_of(DatabaseChange(op="u", source=source)) for source in (first, second))
    assert before is not None
    assert after is not None
    assert beyond(after, before) is None
    read = position_of(DatabaseChange(op="r", source=second))
    assert read is not None
    assert beyond(read, before) is False, "the time of a row of a snapshot is the one when it was read"


@pytest.mark.parametrize(
    "gtid", [f"{SERVER}:1-5", f"{SERVER}:1-5:7", f"{SERVER}:1,{OTHER}:2", "0-1-9,1-1-4", SERVER, "9", "0-1"]
)
def test_a_gtid_that_does_not_name_one_transaction_is_refused(gtid: str) -> None:
    source = binlog("b.9", 900, gtid=gtid, db="shop", table="customers")
    with pytest.raises(
        DeserializationError, match=r"GTID '.*' of table 'shop\.customers' names no single transaction"
    ):
        position_of(DatabaseChange(op="u", source=source))


def test_a_source_without_a_position_has_none() -> None:
    assert (
        position_of(DatabaseChange(op="u", source=DatabaseSource(connector="sqlserver", table="t"))) is None
    )


@pytest.mark.parametrize(
    "source", [DatabaseSource(lsn=8), binlog("b.9", 900), binlog("b.9", 900, gtid="a:9")]
)
def test_the_first_change_after_a_snapshot_is_beyond_its_rows_though_the_positions_are_the_same(
    source: DatabaseSource,
) -> None:
    read, updated = (position_of(DatabaseChange(op=op, source=source)) for op in "ru")
    assert read is not None
    assert updated is not None
    assert beyond(updated, read)
    assert not beyond(read, updated)
    assert not beyond(read, read)


SNAPSHOT = DatabaseChange[Any](op="r", source=binlog("b.2", 1_000, server_id=0, ts_ms=105_500))
"""A row of a table that was read five seconds after the snapshot's position was taken."""


@pytest.mark.parametrize(
    ("source", "later"),
    [
        pytest.param(binlog("b.2", 1_400, gtid="0-7-12", ts_ms=103_000), True, id="during the snapshot"),
        pytest.param(binlog("b.2", 1_400, server_id=7, ts_ms=103_000), True, id="without a GTID"),
        pytest.param(binlog("b.2", 1_500, gtid="0-7-13", ts_ms=110_000), True, id="after it"),
        pytest.param(binlog("b.2", 900, gtid="0-7-10", ts_ms=99_000), False, id="before it"),
        pytest.param(binlog("b.1", 4, gtid="0-8-14", ts_ms=200_000), True, id="after a failover"),
    ],
)
def test_a_change_is_beyond_a_row_of_a_snapshot_by_its_place_in_the_files_or_after_a_failover_by_its_time(
    source: DatabaseSource, *, later: bool
) -> None:
    change, read = position_of(DatabaseChange(op="u", source=source)), position_of(SNAPSHOT)
    assert change is not None
    assert read is not None
    assert beyond(change, read) is later
    if "b.2" in str(source.file):
        assert beyond(read, change) is not later
