"""Records that are not in the partition of their key are noticed, and said once."""

from datetime import timedelta
from typing import Any

from structlog.testing import capture_logs

from streamtable import Context, Group, Input, Join, Long, Persist, Stream, String, Table
from streamtable.base.partitioner import Partitioner, partition_for
from streamtable.flow import Flow, Tumbling, WindowedKey
from streamtable_testing import Tester

WARNING = "records are not in the partitions of their keys"
KEYS = [b"user-%d" % number for number in range(40)]


def count(ctx: Context[str, int], _: str) -> None:
    ctx.set((ctx.value or 0) + 1)


def warnings_of(tester: Tester, program: Any, topic: str, written_by: Partitioner) -> list[Any]:
    """Run the program, and write records of each key to the partition that a partitioner chooses."""
    with capture_logs() as logs:
        tester.run(program, partitions=4)
        for key in KEYS:
            tester.emit_raw(topic, key, b"12345678", partition=partition_for(key, 4, written_by))
    return [line for line in logs if line["event"] == WARNING]


def test_what_librdkafkas_default_has_written_is_said_once_in_each_partition(tester: Tester) -> None:
    clicks = Stream("clicks", String(), String())
    lines = warnings_of(tester, Group("g", Input(clicks, count), Persist(Long())), "clicks", "crc32")
    assert len(lines) == 4
    assert lines[0]["log_level"] == "warning"
    assert lines[0]["partitioner"] == "murmur2"
    assert all("partitioner='crc32'" in line["reason"] for line in lines)


def test_a_declared_partitioner_is_not_warned_of_and_its_rows_are_found(tester: Tester) -> None:
    clicks = Stream("clicks", String(), String(), partitioner="crc32")
    group = Group("g", Input(clicks, count), Persist(Long()))
    assert warnings_of(tester, group, "clicks", "crc32") == []
    view = tester.view(group.table)
    assert [view.get(key.decode()) for key in KEYS] == [1] * len(KEYS)


def test_a_joined_table_is_looked_at_too(tester: Tester) -> None:
    clicks, users = Stream("clicks", String(), String()), Table("users", String(), Long())
    group = Group("g", Input(clicks, count), Join(users), Persist(Long()))
    lines = warnings_of(tester, group, "users", "crc32")
    assert {line["place"].split("[")[0] for line in lines} == {"users"}


def test_windows_are_where_the_records_of_their_key_are(tester: Tester) -> None:
    clicks = Stream("clicks", String(), String())
    minutes = Stream("minutes", WindowedKey(String(), 60_000), Long())
    flow = Flow("f")
    windows = flow.stream(clicks).group_by_key().window(Tumbling(timedelta(minutes=1), grace=timedelta(0)))
    windows.count("counts").changes().to(minutes)
    reader: Group[Any, Any] = Group("reader", Input(minutes, lambda ctx, value: None))
    with capture_logs() as logs:
        tester.run(flow, reader, partitions=4)
        for key in KEYS:
            tester.emit(clicks, key.decode(), "x")
    assert [line for line in logs if line["event"] == WARNING] == []


def test_windows_that_the_whole_key_has_placed_are_not_said_to_fit_their_partitioner(tester: Tester) -> None:
    minutes = Stream("minutes", WindowedKey(String(), 60_000), Long())
    reader: Group[Any, Any] = Group("reader", Input(minutes, lambda ctx, value: None))
    lines = warnings_of(tester, reader, "minutes", "murmur2")
    assert lines
    assert not any("partitioner='murmur2' (fits" in line["reason"] for line in lines)


def test_records_without_a_key_or_with_an_empty_one_are_no_sign(tester: Tester) -> None:
    clicks = Stream("clicks", String(), String())
    group = Group("g", Input(clicks, count), Persist(Long()))
    with capture_logs() as logs:
        tester.run(group, partitions=4)
        for partition in range(4):
            for key in (None, b""):
                tester.emit_raw("clicks", key, b"x", partition=partition)
    assert [line for line in logs if line["event"] == WARNING] == []
