"""Keys in windows: wherever a key is hashed, compared or ordered, it is the key without its window."""

from datetime import timedelta
from typing import Any

import pytest

from streamtable import Group, Input, Json, Long, Persist, Stream, String
from streamtable.flow import Flow, SessionKey, Tumbling, Windowed, WindowedKey
from streamtable_testing.tester import Tester

VIEWS = Stream[Any, Any]("views", Json(), Json())
MINUTE_MS = 60_000
ANN, ANN_AGAIN = {"user": "ann", "page": "home"}, {"page": "home", "user": "ann"}


def counted(flow: Flow) -> Any:
    minutes = Tumbling(timedelta(minutes=1), grace=timedelta(0))
    views = flow.stream(VIEWS, time=lambda view: view["at"])
    return views.group_by_key().window(minutes).count("per-minute")


@pytest.mark.parametrize("codec", [WindowedKey(Json(), MINUTE_MS), SessionKey(Json())])
def test_equal_keys_in_equal_windows_have_equal_bytes(codec: Any) -> None:
    stream = Stream[Any, int]("minutes", codec, Long())
    one, other = (stream.key.encode(Windowed(key, 0, MINUTE_MS)) for key in (ANN, ANN_AGAIN))
    assert one == other


def test_windows_of_keys_that_are_objects_are_found_by_key() -> None:
    flow = Flow("pv")
    table = counted(flow).table
    with Tester() as tester:
        tester.run(flow)
        tester.emit(VIEWS, ANN, {"at": MINUTE_MS})
        key = Windowed(ANN_AGAIN, MINUTE_MS, 2 * MINUTE_MS)
        assert list(tester.view(table).get_many([key]).values()) == [1]
        assert list(tester.table(table).values()) == [1]


@pytest.mark.parametrize("partitions", [1, 8])
def test_a_batch_may_read_another_window_of_its_keys(partitions: int) -> None:
    minutes = Stream[Any, int]("minutes", WindowedKey(String(), MINUTE_MS), Long())
    seen: list[Any] = []

    def compare(batch: Any) -> None:
        before = [Windowed(each.key, each.start_ms - MINUTE_MS, each.start_ms) for each in batch.keys]
        rows = batch.get_many(before)
        batch.put_many(dict(zip(batch.keys, batch.events, strict=True)))
        seen.extend((count, rows[key]) for key, count in zip(before, batch.events, strict=True))

    flow = Flow("pv")
    names = flow.stream(Stream[str, Any]("pages", String(), Json()), time=lambda view: view["at"])
    windows = names.group_by_key().window(Tumbling(timedelta(minutes=1), grace=timedelta(0)))
    windows.count("per-minute").final().to(minutes)
    group = Group("trend", Input(minutes, batch=compare), Persist(Long()))
    with Tester(partitions=partitions) as tester:
        tester.run(flow, group)
        for minute in (1, 2, 2, 3, 4):
            tester.emit(Stream[str, Any]("pages", String(), Json()), "home", {"at": minute * MINUTE_MS})
    assert seen == [(1, None), (2, 1), (1, 2)]


def test_windows_over_the_rows_of_windows_are_where_the_records_of_their_key_are() -> None:
    pages = Stream[str, Any]("pages", String(), Json())
    minutes, hours = (Tumbling(timedelta(minutes=each), grace=timedelta(0)) for each in (1, 60))
    out = Stream[Any, int]("out", hours.key(minutes.key(String())), Long())
    flow = Flow("pv")
    per_minute = flow.stream(pages).group_by_key().window(minutes).count("per-minute")
    per_hour = per_minute.changes().group_by_key().window(hours).count("changes")
    per_hour.changes().to(out)
    with Tester(partitions=8) as tester:
        tester.run(flow)
        homes = {}
        for name in "abcdefgh":
            tester.emit(pages, name, 1)
            tester.emit(pages, name, 2)
        for page in tester.records(pages):
            homes[page.key] = page.partition
        rows = tester.table(per_hour.table)
        view = tester.view(per_hour.table)
        assert len(rows) == 8
        assert {key: view.get(key) for key in rows} == rows
        assert [view.windows(key.key) for key in rows] == [[(key, row)] for key, row in rows.items()]
        placed: list[Any] = tester.records(out)
        assert {each.key.key.key: each.partition for each in placed} == homes
