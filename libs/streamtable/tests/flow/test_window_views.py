"""Views of windowed tables: the windows of a key in a range of time."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from struct import pack
from typing import Any

import pytest

from streamtable import Count, Group, Input, Long, Persist, Stream, String, Table
from streamtable.errors import GraphError
from streamtable.flow import Flow, Session, SessionKey, Sliding, Tumbling, Windowed, WindowedKey
from streamtable_testing import Tester

CLICKS: Stream[str, str] = Stream("clicks", String(), String())
MINUTE = 60_000
BASE = 1_699_999_980_000  # a full minute, shortly before the Tester's clock
DAY = timedelta(days=1)


def emit(tester: Tester, times: Mapping[str, list[int]]) -> None:
    for key, each in times.items():
        for at in each:
            tester.emit(CLICKS, key, "click", timestamp_ms=BASE + at)


def test_a_view_gives_the_windows_of_a_key_in_a_range_of_time(tester: Tester) -> None:
    flow = Flow("clicks-by")
    windows = flow.stream(CLICKS).group_by_key().window(Tumbling(timedelta(minutes=1), grace=DAY))
    counts = windows.count("minute")
    for group in flow.groups:
        tester.run(group, partitions=4)
    emit(tester, {f"user-{n}": [0, 1, MINUTE, 3 * MINUTE + 5] for n in range(8)})
    view = tester.view(counts.table)
    for user in [f"user-{n}" for n in range(8)]:
        every = [
            (Windowed(user, BASE + at * MINUTE, BASE + (at + 1) * MINUTE), n)
            for at, n in ((0, 2), (1, 1), (3, 1))
        ]
        assert view.windows(user) == every
        assert view.windows(user, BASE + MINUTE, BASE + 3 * MINUTE) == every[1:2]
        assert view.windows(user, BASE + MINUTE - 1, BASE + 3 * MINUTE + 1) == every
        assert view.windows(user, BASE + 4 * MINUTE) == []
        # A row is found by key and window, in the partition of the key.
        assert view.get(every[0][0]) == 2


def test_the_last_millisecond_of_a_sliding_window_and_of_a_session_belongs_to_it(tester: Tester) -> None:
    flow = Flow("clicks-by")
    clicks = flow.stream(CLICKS).group_by_key()
    seconds = timedelta(seconds=5)
    sliding = clicks.window(Sliding(seconds, grace=DAY)).count("sliding")
    sessions = clicks.window(Session(seconds, grace=DAY)).count("sessions")
    tester.run(flow.group())
    emit(tester, {"a": [25_000]})
    for table, start in ((sliding.table, 20_000), (sessions.table, 25_000)):
        view, window = tester.view(table), Windowed("a", BASE + start, BASE + 25_000)
        at = {at: view.windows("a", BASE + at, BASE + at + 1) for at in (start - 1, start, 25_000, 25_001)}
        assert at == {start - 1: [], start: [(window, 1)], 25_000: [(window, 1)], 25_001: []}


def test_keys_that_begin_with_another_key_are_not_taken_for_its_windows(tester: Tester) -> None:
    flow = Flow("clicks-by")
    counts = flow.stream(CLICKS).group_by_key().window(Tumbling(timedelta(minutes=1), grace=DAY)).count("n")
    tester.run(flow.group())
    longer = "a" + "\0" * 7 + "\x01" + "bcdefgh"
    emit(tester, {"a": [5], longer: [5], "a" + "\0" * 8: [5]})
    view = tester.view(counts.table)
    assert [windowed.key for windowed, _ in view.windows("a")] == ["a"]
    assert [windowed.key for windowed, _ in view.windows(longer)] == [longer]


@pytest.mark.parametrize(
    ("keys", "foreign"),
    [
        (WindowedKey(String(), MINUTE), [b"a" + pack(">q", -2 * MINUTE), b"xy"]),
        (SessionKey(String()), [b"a" + pack(">qq", 20, -1), b"xy"]),
    ],
    ids=["windows", "sessions"],
)
def test_a_foreign_row_among_the_windows_of_a_key_is_skipped_and_counted(
    keys: Any, foreign: list[bytes], tester: Tester
) -> None:
    table: Table[Any, int] = Table("windows", keys, Long())
    good = [Windowed(key, 0, MINUTE) for key in ("a", "")]
    tester.kafka.create_topic("windows", 1, compacted=True)
    for key in [*map(keys.encode, good), *foreign]:
        tester.kafka.append("windows", key, Long().encode(1), partition=0)
    view = tester.view(table)
    for window in good:
        rows = view.windows(window.key)
        assert (list(rows), rows.unreadable) == ([(window, 1)], 1)


def test_sessions_are_found_by_any_moment_of_them(tester: Tester) -> None:
    flow = Flow("visits")
    sessions = flow.stream(CLICKS).group_by_key().window(Session(timedelta(seconds=10), grace=DAY)).count("n")
    tester.run(flow.group())
    emit(tester, {"alice": [1_000, 9_000, 15_000, 60_000], "al": [2_000]})
    view = tester.view(sessions.table)
    first, second = (
        (Windowed("alice", BASE + 1_000, BASE + 15_000), 3),
        (Windowed("alice", BASE + 60_000, BASE + 60_000), 1),
    )
    assert view.windows("alice") == [first, second]
    assert view.windows("alice", BASE + 12_000, BASE + 20_000) == [first]
    assert view.windows("alice", BASE + 15_001, BASE + 60_001) == [second]
    assert view.windows("alice", BASE + 15_001, BASE + 60_000) == []


def test_a_table_without_windows_is_refused(tester: Tester) -> None:
    group: Group[str, int] = Group("counts", Input(CLICKS, aggregate=Count()), Persist(Long()))
    tester.run(group)
    with pytest.raises(GraphError, match="has no windows"):
        tester.view(group.table).windows("alice")


def test_a_range_that_begins_at_a_datetime_is_refused_with_the_conversion(tester: Tester) -> None:
    flow = Flow("visits")
    minutes = flow.stream(CLICKS).group_by_key().window(Tumbling(timedelta(minutes=1), grace=DAY)).count("n")
    tester.run(flow.group())
    view: Any = tester.view(minutes.table)
    with pytest.raises(TypeError, match=r"int\(when.timestamp\(\) \* 1000\)"):
        view.windows("alice", since_ms=datetime(2026, 1, 1, tzinfo=UTC))
