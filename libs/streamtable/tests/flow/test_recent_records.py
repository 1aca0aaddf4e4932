"""The waiting records in memory: which are there, and of which only the keys are known."""

from streamtable.flow.joins import LEFT, RIGHT
from streamtable.flow.recent_records import RecentRecords
from streamtable.flow.waiting_records import as_matched, records_of, rows_of


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


def test_several_records_stay_beside_one_that_is_deleted() -> None:
    recent = RecentRecords(0, None)
    first, *others = added(recent, b"a", b"a", b"a")
    (raw,), _ = rows_of(LEFT, [b"a"], [first])
    recent.deleted(raw)
    assert recent.of(LEFT, [b"a"]) == [others]


def test_room_is_made_by_the_bytes_of_keys_and_records() -> None:
    recent = RecentRecords(0, None)
    key = b"k" * 500
    added(recent, key)
    (kept,) = added(recent, b"a")
    recent.make_room(800, commits=1, gone_before_ms=0)
    assert recent.of(LEFT, [key, b"a"]) == [None, kept]


def test_making_room_leaves_a_later_record_of_a_key_whose_first_was_deleted() -> None:
    recent = RecentRecords(0, None)
    (first,) = added(recent, b"a")
    (raw,), _ = rows_of(LEFT, [b"a"], [first])
    recent.deleted(raw)
    (later,) = added(recent, b"a")
    recent.make_room(300, commits=1, gone_before_ms=0)
    assert (recent.since, recent.of(LEFT, [b"a"])) == (1, [later])


def test_a_record_that_was_matched_replaces_itself_and_no_other() -> None:
    recent = RecentRecords(0, None)
    alone, first, second = added(recent, b"a", b"b", b"b")
    for key, record in ((b"a", alone), (b"b", second)):
        recent.replace(LEFT, key, record, as_matched(record))
    recent.replace(LEFT, b"a", alone, b"is there no more")
    recent.replace(LEFT, b"b", alone, b"is of another key")
    recent.replace(LEFT, b"c", alone, b"is of another key")
    assert recent.of(LEFT, [b"a", b"b", b"c"]) == [as_matched(alone), [first, as_matched(second)], None]


def test_records_that_are_gone_leave_no_key_to_look_up() -> None:
    recent = RecentRecords(0, None)
    added(recent, b"a", due_ms=200)
    recent.make_room(1 << 20, commits=1, gone_before_ms=200)
    assert recent.of(LEFT, [b"a"]) != [None], "it is due, and may still match"
    recent.make_room(1 << 20, commits=1, gone_before_ms=201)
    assert recent.of(LEFT, [b"a"]) == [None]
    assert not any(recent.may_be_older(LEFT, [b"a"], 201))


def test_of_a_table_that_has_rows_no_key_is_known_until_they_are_gone() -> None:
    recent = RecentRecords(7, 200)
    assert recent.since == 7
    assert all(recent.may_be_older(LEFT, [b"a"], 200))
    assert not any(recent.may_be_older(LEFT, [b"a"], 201))
