import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry

from streamtable.codec.plain import Long, String
from streamtable.observe import Metrics
from streamtable.topics import Table
from streamtable.views.rows import OnUnreadable, RowReader
from streamtable.views.watch import Change, CopyReloaded, TooSlow, Watch

if TYPE_CHECKING:
    from streamtable.errors import UnreadableRow

TABLE = Table("t", String(), Long())
ONE = Long().encode(1)


def make(
    key: bytes | None = None, prefix: bytes = b"", capacity: int = 10,
    closed: Callable[[Watch[str, int]], None] = lambda watch: None,
    on_unreadable: OnUnreadable | None = None,
) -> Watch[str, int]:  # fmt: skip
    reader = RowReader(TABLE, lambda key: 0, Metrics.register(CollectorRegistry()), "view")
    return Watch(TABLE, key, prefix, capacity, closed, reader, on_unreadable)


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


def test_a_change_that_cannot_be_decoded_is_left_out_and_counted() -> None:
    errors: list[UnreadableRow] = []
    watch = make(on_unreadable=errors.append)
    watch.offer(2, {b"a": b"\0", b"b": ONE, b"\xff": ONE}, 7)
    watch.close()
    assert [change.key for change in watch] == ["b"]
    assert watch.unreadable == 2
    assert [(error.key, error.topic, error.partition, error.position) for error in errors] == [
        (b"a", "t", 0, 7),
        (b"\xff", "t", 0, 7),
    ]


def test_the_time_that_a_reader_waits_does_not_begin_again_with_a_change_that_is_left_out() -> None:
    watch = make()
    watch.offer(0, {b"a": b"\0"}, 1)
    assert watch.next(timeout=0) is None
    assert watch.unreadable == 1


def test_a_watch_is_ended_with_an_error_when_the_copy_is_loaded_again() -> None:
    watch = make()
    watch.offer(0, {b"a": ONE}, 1)
    watch.reloaded(3, "the disk is damaged")
    assert watch.ended
    for _ in range(3):
        with pytest.raises(
            CopyReloaded, match=r"the disk is damaged.*watch again, then read the rows"
        ) as told:
            watch.next()
    assert (told.value.topic, told.value.partition) == ("t", 3)
