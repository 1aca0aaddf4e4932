from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from localkafka.waiting import wait_until
from streamtable.base.ports import TopicInfo
from streamtable.base.topics import Table
from streamtable.base.types import TopicPartition, Watermarks
from streamtable.codec.plain import Json, String
from streamtable.errors import StoreCorrupted
from streamtable.observe import Metrics
from streamtable.store.memory import MemoryStores
from streamtable.views.lookup import LookupTable, LookupTables

PLACE = TopicPartition("t", 0)
TABLE = Table("t", String(), Json())


class LogDouble:
    """Its log can be written to."""

    def __init__(self, known: Any, reader: Any, record: Any) -> None:
        self.known, self.reader, self.record = known, reader, record
        reader.logs[PLACE] = []

    def cluster(self) -> Any:
        return self.known

    def table_reader(self, name: str) -> Any:
        self.reader.positions.clear()
        return self.reader

    def write(self, key: str, value: Any) -> None:
        log = self.reader.logs[PLACE]
        log.append(self.record(key.encode(), None if value is None else Json().encode(value), len(log)))
        self.known.marks[PLACE] = Watermarks(0, len(log))


@pytest.fixture
def log(reader: Any, record: Any, make_cluster: Any, topic_info: Callable[..., TopicInfo]) -> LogDouble:
    made = LogDouble(make_cluster({"t": topic_info("t")}), reader, record)
    made.write("k", [1])
    return made


@pytest.fixture
def view(
    log: LogDouble, stores: MemoryStores, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LookupTable[str, Any]]:
    monkeypatch.setattr("streamtable.views.updater._STEP_SECONDS", 0.002)
    given: Any = log
    lookups = LookupTables(given, stores, clock, Metrics.register(CollectorRegistry()), "group")
    lookups.start()
    made: Any = lookups.follow([TABLE])["t"]
    made.wait_ready(60)
    yield made
    lookups.close()


def until(true: Callable[[], object]) -> None:
    wait_until(true, every=0.002)


def test_a_row_is_read_once_as_long_as_it_does_not_change(
    view: LookupTable[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []
    reading = view._read

    def noted(key: bytes) -> bytes | None:
        read.append(key)
        return reading(key)

    monkeypatch.setattr(view, "_read", noted)
    assert [view.get(key) for key in ("k", "k", "none", "none")] == [[1], [1], None, None]
    assert read == [b"k", b"none"]


def test_what_a_handler_does_to_a_value_is_not_seen_by_the_next(view: LookupTable[str, Any]) -> None:
    row = view.get("k")
    assert row is not None
    row.append("mine")
    assert view.get("k") == [1]


def test_changes_and_deletions_are_seen(view: LookupTable[str, Any], log: LogDouble) -> None:
    assert (view.get("k"), view.get("new")) == ([1], None)
    log.write("k", [2])
    log.write("new", [3])
    until(lambda: (view.get("k"), view.get("new")) == ([2], [3]))
    log.write("k", None)
    until(lambda: view.get("k") is None)


def test_a_row_that_changes_while_it_is_read_is_not_kept(
    view: LookupTable[str, Any], log: LogDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = view._read

    def slowly(key: bytes) -> bytes | None:
        found = reading(key)
        before = view._changes
        log.write("k", [2])
        until(lambda: view._changes > before)
        return found

    monkeypatch.setattr(view, "_read", slowly)
    assert view.get("k") == [1]  # it was so when it was read
    monkeypatch.setattr(view, "_read", reading)
    assert view.get("k") == [2]


def test_a_copy_that_is_loaded_again_leaves_nothing_of_the_former_one(
    view: LookupTable[str, Any], log: LogDouble, clock: Any
) -> None:
    assert view.get("k") == [1]
    log.reader.logs[PLACE] = [log.record(b"other", b"[9]", 0)]
    view._replicas.damaged(StoreCorrupted("bit flip", topic="t", partition=0))
    until(lambda: (clock.sleep(0.1), view._replicas.loads > 1 and view.ready)[1])
    assert (view.get("k"), view.get("other")) == (None, [9])


def test_the_rows_kept_have_a_bound(view: LookupTable[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamtable.views.lookup._KEPT_BYTES_MAX", 10_000)
    for number in range(1_000):
        view.get(f"k{number}")
    assert 40 < len(view._kept) < 70


def test_a_row_is_never_older_than_a_change_that_was_reported(
    view: LookupTable[str, Any], log: LogDouble
) -> None:
    notified: list[int] = []
    changed = view._changed

    def tell(partition: int, rows: Mapping[bytes, bytes | None], offset: int) -> None:
        changed(partition, rows, offset)
        notified.append(offset)

    view._replicas.all()[0]._listener = tell
    for number in range(2, 60):
        log.write("k", [number])
        until(lambda number=number: view.get("k") == [number] or (notified and notified[-1] >= number))  # type: ignore[misc] # bound in the loop
        if notified and notified[-1] >= number:
            assert view.get("k") == [number]
