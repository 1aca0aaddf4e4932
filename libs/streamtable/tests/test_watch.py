import threading
from collections.abc import Callable

import pytest

from streamtable.codec.plain import Long, String
from streamtable.topics import Table
from streamtable.watch import Change, TooSlow, Watch

TABLE = Table("t", String(), Long())
ONE = Long().encode(1)


def make(
    key: bytes | None = None, prefix: bytes = b"", capacity: int = 10,
    closed: Callable[[Watch[str, int]], None] = lambda watch: None,
) -> Watch[str, int]:  # fmt: skip
    return Watch(TABLE, key, prefix, capacity, closed)


def test_changes_come_decoded_in_order_with_their_place() -> None:
    watch = make()
    watch.offer(2, {b"a": ONE, b"b": None}, 7)
    assert watch.next() == Change("a", 1, 2, 7)
    assert watch.next() == Change("b", None, 2, 7)


def test_a_watch_of_one_key_hears_of_no_other() -> None:
    watch = make(key=b"a")
    watch.offer(0, {b"aa": ONE, b"b": ONE}, 1)
    watch.offer(0, {b"a": ONE}, 2)
    assert watch.next(timeout=0) == Change("a", 1, 0, 2)
    assert watch.next(timeout=0) is None


def test_a_watch_of_a_prefix_hears_of_keys_that_begin_with_it() -> None:
    watch = make(prefix=b"a")
    watch.offer(0, {b"b": ONE, b"ab": ONE, b"a": ONE}, 1)
    assert [watch.next(timeout=0), watch.next(timeout=0), watch.next(timeout=0)] == [
        Change("ab", 1, 0, 1),
        Change("a", 1, 0, 1),
        None,
    ]


def test_no_change_within_the_timeout_is_none() -> None:
    assert make().next(timeout=0.001) is None


def test_a_reader_that_waits_is_woken_by_close() -> None:
    watch = make()
    taken: list[Change[str, int]] = []
    reader = threading.Thread(target=lambda: taken.extend(watch))
    reader.start()
    watch.offer(0, {b"a": ONE}, 1)
    watch.close()
    reader.join(5)
    assert not reader.is_alive()
    assert taken == [Change("a", 1, 0, 1)]


def test_what_was_waiting_can_be_taken_after_close_and_then_comes_nothing() -> None:
    ended: list[Watch[str, int]] = []
    with make(closed=ended.append) as watch:
        watch.offer(0, {b"a": ONE}, 1)
    watch.close()
    assert (watch.ended, ended) == (True, [watch])
    assert [change.key for change in watch] == ["a"]
    watch.offer(0, {b"a": ONE}, 2)
    assert watch.next() is None


def test_a_reader_that_is_too_slow_is_told_so_every_time_it_asks() -> None:
    watch = make(capacity=2)
    for offset in range(3):
        watch.offer(0, {b"a": ONE}, offset)
    assert watch.ended
    for _ in range(6):
        with pytest.raises(TooSlow, match="more than 2 changes of 't'"):
            watch.next()


def test_a_watch_holds_exactly_its_capacity_however_large_a_batch_is() -> None:
    watch = make(capacity=5)
    ended = []
    for count in (5, 1_000):
        watch.offer(0, {b"%d" % n: ONE for n in range(count)}, count)
        ended.append(watch.ended)
    assert ended == [False, True]
    assert watch._queue.qsize() == 5 + 1  # and what wakes a reader
