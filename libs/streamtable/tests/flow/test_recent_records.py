"""The waiting records in memory: which are there, and of which only the keys are known."""

from streamtable.flow.joins import LEFT, RIGHT
from streamtable.flow.recent_records import RecentRecords
from streamtable.flow.waiting_records import records_of, rows_of


def added(
    recent: RecentRecords, *keys: bytes, time: int = 100, due_ms: int = 200, commits: int = 0
) -> list[bytes]:
    """Add left records of these keys. Returns them."""
    times = [time] * len(keys)
    records = records_of(LEFT, times, recent.next, [False] * len(keys), times, [b"v"] * len(keys))
    recent.add(LEFT, keys, records, due_ms, commits)
    return records


def test_records_are_found_by_side_and_key_in_the_order_of_time() -> None:
    recent = RecentRecords(0, None)
    (late,) = added(recent, b"a", time=200)
    early, other = added(recent, b"a", b"b", time=100)
    assert recent.of(LEFT, [b"a", b"b", b"c"]) == [[early, late], other, None]
    assert recent.of(RIGHT, [b"a"]) == [None]


def test_the_oldest_records_make_room_and_their_keys_are_known() -> None:
    recent = RecentRecords(0, None)
    added(recent, b"a", b"b")
    (kept,) = added(recent, b"a")
    recent.make_room(300, commits=1, gone_before_ms=0)
    assert recent.of(LEFT, [b"a", b"b"]) == [kept, None]
    assert recent.since == 2
    assert all(recent.may_be_older(LEFT, [b"a", b"b"], 0))
    assert not any(recent.may_be_older(RIGHT, [b"a", b"b"], 0))


def test_records_that_the_store_does_not_have_yet_stay_in_memory() -> None:
    recent = RecentRecords(0, None)
    (record,) = added(recent, b"a", commits=3)
    recent.make_room(1, commits=3, gone_before_ms=0)
    assert recent.of(LEFT, [b"a"]) == [record]
    assert not any(recent.may_be_older(LEFT, [b"a"], 0))
    recent.make_room(1, commits=4, gone_before_ms=0)
    assert recent.of(LEFT, [b"a"]) == [None]
    assert all(recent.may_be_older(LEFT, [b"a"], 0))


def test_a_record_whose_row_is_deleted_is_gone_and_those_beside_it_stay() -> None:
    recent = RecentRecords(0, None)
    first, second, other = added(recent, b"a", b"a", b"b")
    raws, _ = rows_of(LEFT, [b"a", b"b"], [first, other])
    for raw in raws:
        recent.deleted(raw)
    recent.deleted(b"next")
    assert recent.of(LEFT, [b"a", b"b"]) == [second, None]


def test_records_that_are_gone_leave_no_key_to_look_up() -> None:
    recent = RecentRecords(0, None)
    added(recent, b"a", due_ms=200)
    recent.make_room(1 << 20, commits=1, gone_before_ms=201)
    assert recent.of(LEFT, [b"a"]) == [None]
    assert not any(recent.may_be_older(LEFT, [b"a"], 201))


def test_of_a_table_that_has_rows_no_key_is_known_until_they_are_gone() -> None:
    recent = RecentRecords(7, 200)
    assert recent.since == 7
    assert all(recent.may_be_older(LEFT, [b"a"], 200))
    assert not any(recent.may_be_older(LEFT, [b"a"], 201))
