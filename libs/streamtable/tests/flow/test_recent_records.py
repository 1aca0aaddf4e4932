"""The waiting records in memory: some are there, in a dict or frozen; of others only the keys are known."""

from streamtable.flow.joins.frozen_records import KeySpans
from streamtable.flow.joins.recent_records import RecentRecords
from streamtable.flow.joins.rules import LEFT, RIGHT, Side
from streamtable.flow.joins.waiting_records import as_matched, records_of


def added(
    recent: RecentRecords,
    *keys: bytes,
    side: Side = LEFT,
    time: int = 100,
    due_ms: int = 200,
    commits: int = 0,
) -> list[bytes]:
    """Add records of these keys. Returns them."""
    times = [time] * len(keys)
    records = records_of(side, times, recent.next, [False] * len(keys), times, [b"v"] * len(keys))
    recent.add(side, keys, records, due_ms, commits)
    return records


def frozen(recent: RecentRecords, *keys: bytes, side: Side = LEFT) -> list[bytes]:
    """Return the records of these keys that are frozen, in order."""
    spans = KeySpans(keys, [0] * len(keys), [1000] * len(keys))
    return sorted(record for each in recent.frozen(side) for _, record, _ in each.of(spans))


def known(recent: RecentRecords, *keys: bytes, side: Side = LEFT, gone_before_ms: int = 0) -> list[bool]:
    """Return whether each key may have records that are not in memory."""
    return [bool(each) for each in recent.may_be_older(side, list(map(hash, keys)), gone_before_ms)]


def test_records_are_found_by_side_and_key_in_the_order_of_time() -> None:
    recent = RecentRecords(0, None)
    (late,) = added(recent, b"a", time=200)
    early, other = added(recent, b"a", b"b", time=100)
    assert recent.of(LEFT, [b"a", b"b", b"c"]) == [[early, late], other, None]
    assert recent.of(RIGHT, [b"a"]) == [None]


def test_records_beyond_a_part_of_the_memory_are_frozen_and_still_there() -> None:
    recent = RecentRecords(0, None)
    first, second, other = added(recent, b"a", b"a", b"b")
    (right,) = added(recent, b"a", side=RIGHT)
    recent.make_room(1 << 20, commits=1, gone_before_ms=0)
    assert recent.of(LEFT, [b"b"]) == [other]
    assert recent.frozen(LEFT) == []
    recent.make_room(5_000, commits=1, gone_before_ms=0)
    assert recent.of(LEFT, [b"a", b"b"]) == [None, None]
    assert frozen(recent, b"a", b"b") == [first, second, other]
    assert frozen(recent, b"a", side=RIGHT) == [right]
    assert recent.since == 0
    assert known(recent, b"a", b"b") == [False, False]


def test_the_oldest_records_make_room_and_their_keys_are_known() -> None:
    recent = RecentRecords(0, None)
    added(recent, b"a", b"b")
    recent.make_room(400, commits=1, gone_before_ms=0)
    added(recent, b"c", side=RIGHT)
    (kept,) = added(recent, b"a")
    recent.make_room(150, commits=1, gone_before_ms=0)
    assert frozen(recent, b"a", b"b") == [kept]
    assert recent.since == 2
    assert known(recent, b"a", b"b") == [True, True]
    assert known(recent, b"a", b"b", side=RIGHT) == [False, False]
    recent.make_room(0, commits=1, gone_before_ms=0)
    assert recent.since == recent.next == 4
    assert known(recent, b"c", side=RIGHT) == [True]


def test_records_that_the_store_does_not_have_yet_stay_in_memory() -> None:
    recent = RecentRecords(0, None)
    (first,) = added(recent, b"a", commits=2)
    (second,) = added(recent, b"a", commits=3)
    recent.make_room(1, commits=3, gone_before_ms=0)
    assert recent.of(LEFT, [b"a"]) == [[first, second]]
    assert known(recent, b"a") == [False]
    recent.make_room(1, commits=4, gone_before_ms=0)
    assert recent.of(LEFT, [b"a"]) == [None]
    assert frozen(recent, b"a") == []
    assert known(recent, b"a") == [True]


def test_records_are_frozen_once_in_a_commit_and_all_of_them() -> None:
    recent = RecentRecords(0, None)
    for commits in range(3):
        for number in range(10):
            recent.make_room(12_000, commits, gone_before_ms=0)
            added(recent, b"a", b"%d" % number, commits=commits)
    assert len(recent.frozen(LEFT)) == 2
    assert len(frozen(recent, b"a")) == 20


def test_room_is_made_by_the_bytes_of_keys_and_records() -> None:
    recent = RecentRecords(0, None)
    added(recent, b"k" * 500)
    recent.make_room(5_000, commits=1, gone_before_ms=0)
    assert len(recent.frozen(LEFT)) == 1, "an eighth of the memory is exceeded"
    (kept,) = added(recent, b"a")
    recent.make_room(550, commits=1, gone_before_ms=0)
    assert frozen(recent, b"a", b"k" * 500) == [kept]


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
    assert recent.since == recent.next
    assert known(recent, b"a", gone_before_ms=201) == [False]


def test_frozen_records_that_are_gone_leave_no_key_to_look_up() -> None:
    recent = RecentRecords(0, None)
    added(recent, b"a", due_ms=300)
    added(recent, b"b", due_ms=200)
    recent.make_room(1_000, commits=1, gone_before_ms=300)
    assert frozen(recent, b"a"), "the last of them is due, and may still match"
    recent.make_room(1_000, commits=1, gone_before_ms=301)
    assert frozen(recent, b"a", b"b") == []
    assert recent.since == 2
    assert known(recent, b"a", b"b", gone_before_ms=301) == [False, False]


def test_of_a_table_that_has_rows_no_key_is_known_until_they_are_gone() -> None:
    recent = RecentRecords(7, 200)
    assert recent.since == 7
    assert known(recent, b"a", gone_before_ms=200) == [True]
    assert known(recent, b"a", gone_before_ms=201) == [False]
