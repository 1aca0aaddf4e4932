import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry

from streamtable.base.topics import Table
from streamtable.codec.plain import Long, String
from streamtable.observe import Metrics
from streamtable.views.rows import OnUnreadable, RowReader
from streamtable.views.watch import Change, CopyReloaded, TooSlow, Watch, Watches

if TYPE_CHECKING:
    from streamtable.errors import UnreadableRow

TABLE = Table("t", String(), Long())
ONE = Long().encode(1)


def make(
    key: bytes | None = None, prefix: bytes = b"", capacity: int = 10,
    closed: Callable[[Watch[str, int]], None] = lambda watch: None,
    on_unreadable: OnUnreadable | None = None, capacity_bytes: int = 1 << 20,
) -> Watch[str, int]:  # fmt: skip
    reader = RowReader(TABLE, lambda key: 0, Metrics.register(CollectorRegistry()), "view")
    watched = prefix if key is None else key
    return Watch(reader, watched, key is None, capacity, capacity_bytes, closed, on_unreadable)


def offer(watch: Watch[str, int], *changed: Any) -> None:
    """Tell it of changed rows as its view does."""
    watches: Watches[str, int] = Watches()
    watches.add(watch)
    watches.changed(*changed)


def test_changes_come_decoded_in_order_with_their_place() -> None:
    watch = make()
    offer(watch, 2, {b"a": ONE, b"b": None}, 7)
    assert watch.next() == Change("a", 1, 2, 7)
    assert watch.next() == Change("b", None, 2, 7)


def test_a_watch_of_one_key_hears_of_no_other() -> None:
    watch = make(key=b"a")
    offer(watch, 0, {b"aa": ONE, b"b": ONE}, 1)
    offer(watch, 0, {b"a": ONE}, 2)
    assert watch.next(timeout=0) == Change("a", 1, 0, 2)
    assert watch.next(timeout=0) is None


def test_a_watch_of_a_prefix_hears_of_keys_that_begin_with_it() -> None:
    watch = make(prefix=b"a")
    offer(watch, 0, {b"b": ONE, b"ab": ONE, b"a": ONE}, 1)
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
    offer(watch, 0, {b"a": ONE}, 1)
    watch.close()
    reader.join(60)
    assert not reader.is_alive()
    assert taken == [Change("a", 1, 0, 1)]


def test_what_was_waiting_can_be_taken_after_close_and_then_comes_nothing() -> None:
    ended: list[Watch[str, int]] = []
    with make(closed=ended.append) as watch:
        offer(watch, 0, {b"a": ONE}, 1)
    watch.close()
    assert (watch.ended, ended) == (True, [watch])
    assert [change.key for change in watch] == ["a"]
    offer(watch, 0, {b"a": ONE}, 2)
    assert watch.next() is None


def test_a_reader_that_is_too_slow_learns_it_every_time_it_asks() -> None:
    watch = make(capacity=2)
    for offset in range(3):
        offer(watch, 0, {b"a": ONE}, offset)
    assert watch.ended
    for _ in range(6):
        with pytest.raises(TooSlow, match="more than 2 changes of 't'"):
            watch.next()


def test_a_reader_that_is_too_slow_for_the_bytes_of_the_rows_learns_to_watch_again() -> None:
    watch = make(capacity_bytes=2 * len(ONE))
    for offset in range(4):
        offer(watch, 0, {b"a": ONE}, offset)
        assert watch.next(timeout=0) == Change("a", 1, 0, offset)  # taken in time: it never waits
    offer(watch, 0, {b"a": ONE, b"b": ONE}, 5)
    assert not watch.ended
    offer(watch, 0, {b"c": ONE}, 6)
    with pytest.raises(TooSlow, match="more than 16 bytes of changes of 't'"):
        watch.next()


def test_a_row_larger_than_the_capacity_in_bytes_is_delivered() -> None:
    watch = make(capacity_bytes=1)
    offer(watch, 0, {b"a": ONE}, 1)
    assert watch.next(timeout=0) == Change("a", 1, 0, 1)


def test_a_watch_holds_exactly_its_capacity_and_nothing_once_it_has_missed_changes() -> None:
    watch = make(capacity=5)
    found = []
    for count in (5, 1_000):
        offer(watch, 0, {b"%d" % n: ONE for n in range(count)}, count)
        found.append((watch.ended, len(watch._waiting)))
    assert found == [(False, 5), (True, 0)]


def test_a_change_that_cannot_be_decoded_is_left_out_and_counted() -> None:
    errors: list[UnreadableRow] = []
    watch = make(on_unreadable=errors.append)
    offer(watch, 2, {b"a": b"\0", b"b": ONE, b"\xff": ONE}, 7)
    watch.close()
    assert [change.key for change in watch] == ["b"]
    assert watch.unreadable == 2
    assert [(error.key, error.topic, error.partition, error.position) for error in errors] == [
        (b"a", "t", 0, 7),
        (b"\xff", "t", 0, 7),
    ]


def test_the_time_that_a_reader_waits_does_not_begin_again_with_a_change_that_is_left_out() -> None:
    watch = make()
    offer(watch, 0, {b"a": b"\0"}, 1)
    assert watch.next(timeout=0) is None
    assert watch.unreadable == 1


def test_a_watch_is_ended_with_an_error_when_the_copy_is_loaded_again() -> None:
    watch = make()
    offer(watch, 0, {b"a": ONE}, 1)
    watch.reloaded(3, "the disk is damaged")
    assert watch.ended
    for _ in range(3):
        with pytest.raises(
            CopyReloaded, match=r"the disk is damaged.*watch again, then read the rows"
        ) as raised:
            watch.next()
    assert (raised.value.topic, raised.value.partition) == ("t", 3)


# ---- coroutines ------------------------------------------------------------------------------------------------------


def test_a_coroutine_gets_changes_as_they_come_from_another_thread_until_the_end() -> None:
    watch = make()

    async def read() -> list[str]:
        async with asyncio.timeout(60):
            return [change.key async for change in watch]

    def change() -> None:
        for number in range(100):
            offer(watch, 0, {b"k%d" % number: ONE}, number)
        watch.close()

    watch._capacity = 1_000
    changing = threading.Timer(0.05, change)
    changing.start()
    assert asyncio.run(read()) == [f"k{number}" for number in range(100)]
    changing.join()


def test_a_coroutine_that_gives_up_waiting_loses_no_change() -> None:
    watch = make()

    async def read() -> Change[str, int] | None:
        for _ in range(20):
            with suppress(TimeoutError):
                await asyncio.wait_for(watch.next_async(), 0.001)
        offer(watch, 0, {b"a": ONE}, 1)
        return await watch.next_async()

    assert asyncio.run(read()) == Change("a", 1, 0, 1)


def test_a_coroutine_learns_that_changes_were_missed() -> None:
    watch = make(capacity=2)

    async def read() -> None:
        waiting = asyncio.create_task(watch.next_async())
        await asyncio.sleep(0)
        watch.reloaded(3, "the disk is damaged")
        await waiting

    with pytest.raises(CopyReloaded):
        asyncio.run(read())


def test_a_reader_whose_event_loop_is_closed_does_not_disturb_the_view() -> None:
    watch = make()

    async def give_up() -> None:
        asyncio.create_task(watch.next_async())  # noqa: RUF006 - it ends with the loop
        await asyncio.sleep(0)

    asyncio.run(give_up())
    offer(watch, 0, {b"a": ONE}, 1)
    assert watch.next(0) == Change("a", 1, 0, 1)


# ---- many watches ----------------------------------------------------------------------------------------------------


def test_a_change_reaches_those_that_watch_its_key_or_a_prefix_of_it_and_costs_no_other() -> None:
    watches: Watches[str, int] = Watches()
    others = [make(key=b"k%d" % number) for number in range(1_000)]
    others += [make(prefix=b"p%d" % number) for number in range(1_000)]
    found = [make(key=b"k7"), make(prefix=b"k"), make(prefix=b"k7"), make()]
    offered: list[Watch[str, int]] = []
    for watch in [*others, *found]:
        watches.add(watch)
        watch.offer = lambda changes, watch=watch: offered.append(watch)  # type: ignore[method-assign,misc] # noted
    watches.changed(0, {b"k7": ONE}, 1)
    assert {id(watch) for watch in offered} == {id(others[7]), *map(id, found)}


def test_a_watch_that_was_taken_out_gets_nothing_and_leaves_nothing_behind() -> None:
    watches: Watches[str, int] = Watches()
    kept = [make(key=b"a"), make(prefix=b"a"), make()]
    for watch in kept:
        watches.add(watch)
    for watch in kept:
        watches.discard(watch)
    watches.changed(0, {b"a": ONE}, 1)
    assert [watch.next(0) for watch in kept] == [None] * 3
    assert (watches._by_key, watches._by_prefix) == ({}, {})
