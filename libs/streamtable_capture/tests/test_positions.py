"""Which of two changes of a row came later."""

from typing import Any

import pytest

from streamtable_capture import Source
from streamtable_capture.positions import beyond, position_of


def binlog(file: str, pos: int, row: int = 0, **given: Any) -> Source:
    return Source(connector="mysql", file=file, pos=pos, row=row, **{"server_id": 1, "ts_ms": 1_000, **given})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Source(lsn=9), Source(lsn=10)),
        (binlog("binlog.000009", 900), binlog("binlog.000010", 4)),
        (binlog("binlog.000009", 99), binlog("binlog.000009", 100)),
        (binlog("binlog.000009", 99, 1), binlog("binlog.000009", 99, 2)),
        (binlog("b.9", 900, gtid="a:9"), binlog("b.1", 4, gtid="a:10")),
        (binlog("b.9", 900, gtid="0-1-9"), binlog("b.1", 4, gtid="0-1-10")),
        (binlog("b.9", 4, 0, gtid="a:9"), binlog("b.9", 4, 1, gtid="a:9")),
        (binlog("b.9", 900, gtid="a:99"), binlog("b.1", 4, gtid="b:1", ts_ms=2_000)),
        (binlog("b.9", 900), binlog("b.1", 4, server_id=2, ts_ms=2_000)),
    ],
)
def test_a_later_change_is_beyond_an_earlier_one_and_not_the_other_way_round(
    first: Source, second: Source
) -> None:
    before, after = position_of(first), position_of(second)
    assert before is not None
    assert after is not None
    assert beyond(after, before) is True
    assert beyond(before, after) is False
    assert beyond(before, before) is False


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (binlog("b.9", 900, gtid="a:99"), binlog("b.1", 4, gtid="b:1")),
        (Source(lsn=9), binlog("b.1", 4)),
    ],
)
def test_changes_of_two_servers_at_one_time_cannot_be_compared(first: Source, second: Source) -> None:
    before, after = position_of(first), position_of(second)
    assert before is not None
    assert after is not None
    assert beyond(after, before) is None
    assert beyond(before, after) is None


def test_a_source_without_a_position_has_none() -> None:
    assert position_of(Source(connector="sqlserver", table="t")) is None
