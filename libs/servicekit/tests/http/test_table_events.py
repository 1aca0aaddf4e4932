import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from servicekit.http.server_events import ServerEvent, Source
from servicekit.http.table_events import ChangeSource, TableEvents
from servicekit_testing import MemoryTable
from servicekit_testing.memory_table import MemoryChange
from streamtable.errors import NotReady


@pytest.fixture
def counts() -> MemoryTable[int]:
    return MemoryTable()


@pytest.fixture
def names() -> MemoryTable[str]:
    return MemoryTable()


def count(value: int | None) -> Mapping[str, Any]:
    return {"count": value}


def name(value: str | None) -> Mapping[str, Any]:
    return {"name": value}


def given(source: Source, timeout: float = 5) -> ServerEvent | None:
    return asyncio.run(source(timeout))


def following(source: Source) -> ServerEvent:
    event = given(source)
    assert event is not None
    return event


def test_the_events_of_a_user_are_the_row_and_then_its_changes(counts: MemoryTable[int]) -> None:
    counts.put("alice", 3)
    with ChangeSource(TableEvents(counts, "count", count), key="alice") as source:
        counts.put("bob", 1)
        counts.put("alice", 4)
        first, second = following(source), following(source)
        assert first == ServerEvent(
            "count", {"user_id": "alice", "count": 3, "partition": 0, "offset": 1}, "0-1"
        )
        assert (second.data["count"], second.id) == (4, "0-3")
        assert given(source, 0) is None


def test_a_change_that_the_first_row_has_already_is_not_sent_again() -> None:
    class ChangedMeanwhile(MemoryTable[int]):
        def answer(self, key: str) -> Any:
            self.put(key, 4)  # after the watch was opened
            return super().answer(key)

    table = ChangedMeanwhile()
    with ChangeSource(TableEvents(table, "count", count), key="alice") as source:
        assert following(source).data["count"] == 4
        assert given(source, 0) is None
        table.put("alice", 5)
        assert following(source).data["count"] == 5


def test_an_event_is_shared_by_all_watches_but_not_with_a_recreated_topic() -> None:
    events = TableEvents(MemoryTable[int](), "count", count)
    first = events.changed(MemoryChange("alice", 3, 0, 1))
    assert events.changed(MemoryChange("alice", 3, 0, 1)) is first
    assert events.changed(MemoryChange("alice", 4, 0, 1)).data["count"] == 4


def test_events_use_the_declared_name_of_the_key(counts: MemoryTable[int]) -> None:
    with ChangeSource(TableEvents(counts, "count", count, key="url"), prefix="") as source:
        counts.put("foo.com", 3)
        data = following(source).data
        assert (data["url"], data["count"]) == ("foo.com", 3)
        assert "user_id" not in data


def test_changes_of_two_tables_are_reported_by_their_names(
    counts: MemoryTable[int], names: MemoryTable[str]
) -> None:
    reported = (TableEvents(counts, "count", count), TableEvents(names, "name", name))
    with ChangeSource(*reported, key="alice") as source:
        assert {following(source).name, following(source).name} == {"count", "name"}
        names.put("alice", "Alice")
        assert following(source).data["name"] == "Alice"
        counts.put("alice", None)
        assert following(source).data["count"] is None


def test_a_table_that_changes_all_the_time_does_not_starve_another(
    counts: MemoryTable[int], names: MemoryTable[str]
) -> None:
    with ChangeSource(
        TableEvents(counts, "count", count), TableEvents(names, "name", name), prefix=""
    ) as source:
        for n in range(10):
            counts.put("alice", n)
        names.put("alice", "Alice")
        assert "name" in {following(source).name, following(source).name}


def test_a_reader_that_was_too_slow_gets_a_last_event(counts: MemoryTable[int]) -> None:
    with ChangeSource(TableEvents(counts, "count", count), prefix="") as source:
        counts.put("alice", 1)
        counts.overrun()
        assert following(source).name == "missed"
        with pytest.raises(StopAsyncIteration):
            given(source, 0)


def test_pending_changes_of_an_ended_watch_are_still_reported(counts: MemoryTable[int]) -> None:
    with ChangeSource(TableEvents(counts, "count", count), prefix="") as source:
        counts.put("alice", 1)
        counts.watches[-1].ended = True
        assert following(source).data["count"] == 1
        with pytest.raises(StopAsyncIteration):
            given(source, 0)


def test_all_watches_are_closed_if_one_table_is_not_ready(
    counts: MemoryTable[int], names: MemoryTable[str]
) -> None:
    names.ready = False
    changes = ChangeSource(TableEvents(counts, "count", count), TableEvents(names, "name", name), key="alice")
    with pytest.raises(NotReady):
        changes.__enter__()
    assert not counts.watches
    assert not names.watches


def test_a_row_that_cannot_be_decoded_is_reported_as_an_event_of_its_own(counts: MemoryTable[int]) -> None:
    counts.spoil("alice")
    with ChangeSource(TableEvents(counts, "count", count), key="alice") as source:
        event = following(source)
        assert event.name == "unreadable"
        assert event.data == {"user_id": "alice", "of": "count", "partition": 0, "before_offset": 2}
        counts.put("alice", 4)
        assert following(source).data["count"] == 4
        counts.spoil("alice")
        counts.put("alice", 5)
        assert [following(source).name, following(source).name] == ["unreadable", "count"]
        counts.spoil("alice")
        assert following(source).name == "unreadable"


def test_an_unreadable_row_is_reported_at_once_while_changes_are_awaited(
    counts: MemoryTable[int],
) -> None:
    async def test() -> None:
        with ChangeSource(TableEvents(counts, "count", count), prefix="") as source:
            waiting = asyncio.create_task(source(60))
            await asyncio.sleep(0)
            counts.spoil("alice")
            async with asyncio.timeout(20):
                event = await waiting
            assert event is not None
            assert event.name == "unreadable"

    asyncio.run(test())


def test_a_source_that_is_cancelled_loses_no_change(counts: MemoryTable[int]) -> None:
    async def test() -> None:
        with ChangeSource(TableEvents(counts, "count", count), prefix="") as source:
            waiting = asyncio.create_task(source(60))
            await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            counts.put("alice", 1)
            event = await source(5)
            assert event is not None
            assert event.data["count"] == 1

    asyncio.run(test())
