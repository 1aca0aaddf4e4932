"""`IdTable`: the last accepted ids can be undone, and later commits remember exactly the ids that were kept."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import compress
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from streamtable.base.ports import Store
from streamtable.base.topics import Stream
from streamtable.codec.plain import Json, String
from streamtable.engine.named.ids import AcceptedIds, IdTable, expanded
from streamtable.graph.aggregate import Count
from streamtable.graph.group import Input
from streamtable.graph.once import IdChunk, Once
from streamtable.store.memory import MemoryStores
from streamtable.store.rocksdb import RocksStore, RocksStores
from streamtable_testing.clock import VirtualClock

NAME = "clicks"
SECOND, DAY = timedelta(seconds=1), timedelta(days=1)


def table_over(store: Store, within: timedelta) -> IdTable:
    once: Once[Any] = Once(by="id", within=within)
    edge = Input(Stream[str, Any](NAME, String(), Json()), aggregate=Count(), once=once)
    return IdTable(store, [edge], 1_000_000, 1 << 16, VirtualClock())


def by_letter(letters: str) -> list[bytes]:
    return [ord(letter).to_bytes(16, "big") for letter in letters]


@dataclass
class Ids:
    """An `IdTable` over a store, which is restarted at will, and its changelog."""

    store: Store = field(default_factory=lambda: MemoryStores().open("ids", 0))
    within: timedelta = SECOND
    changelog: list[tuple[bytes, bytes | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table = table_over(self.store, self.within)

    @property
    def accepted(self) -> AcceptedIds:
        return self.table.accepted[NAME]

    def accept(self, letters: str, *times_ms: int) -> str:
        """Those that were accepted. One time is the time of all."""
        times = list(times_ms) * len(letters) if len(times_ms) == 1 else times_ms
        return "".join(compress(letters, self.answers(letters, times)))

    def answers(self, letters: str, times_ms: Sequence[int]) -> list[bool]:
        return self.accepted.accept(by_letter(letters), times_ms) or [True] * len(letters)

    def take_back(self, begin: int) -> None:
        self.accepted.take_back(begin)

    def commit(self) -> list[IdChunk]:
        """Write the new ids to the store and the changelog. Returns its chunks."""
        changes = self.table.changes()
        self.changelog += changes
        self.store.write(list(self.table.rows(changes)), b"")
        self.table.committed()
        return [IdChunk.decode(value) for key, value in changes if b"\0" in key and value is not None]

    def remembered(self, letters: str, time_ms: int) -> str:
        """Those that are repeats at this time, to another table over the same store."""
        other = Ids(self.store)
        return "".join(each for each in letters if not other.accept(each, time_ms))

    @property
    def repeats(self) -> int:
        return self.table.repeats.get(NAME, 0)


def rows(store: Store) -> list[tuple[bytes, bytes]]:
    with store.scan(None, None) as found:
        return list(found)


def kept(chunks: Iterable[IdChunk]) -> list[tuple[str, int]]:
    """The ids of chunks in the order of their times, which is the order of the chunks; ids of one time by name."""
    ids = [(chr(int.from_bytes(each, "big")), time_ms) for chunk in chunks for each, time_ms in chunk.each()]
    times = [time_ms for _, time_ms in ids]
    assert times == sorted(times)
    return sorted(ids, key=lambda each: (each[1], each[0]))


@pytest.mark.parametrize("begin", range(5))
def test_the_end_of_a_batch_that_was_taken_back_was_never_accepted(begin: int) -> None:
    ids = Ids()
    assert ids.accept("abcd", 10, 20, 30, 40) == "abcd"
    ids.take_back(begin)
    assert kept(ids.commit()) == list(zip("abcd", (10, 20, 30, 40), strict=True))[:begin]
    assert ids.remembered("abcd", 40) == "abcd"[:begin]
    assert ids.accept("abcd", 50) == "abcd"[begin:]


@pytest.mark.parametrize("begin", range(6))
def test_repeats_in_the_end_that_is_taken_back_are_counted_when_they_come_again(begin: int) -> None:
    ids = Ids()
    ids.accept("x", 1)
    ids.commit()
    letters = "axaxb"
    assert ids.accept(letters, 2) == "ab"
    assert ids.repeats == 3
    ids.take_back(begin)
    assert ids.repeats == [0, 0, 1, 2, 3, 3][begin]
    if begin < len(letters):
        ids.accept(letters[begin:], 2)
    assert ids.repeats == 3
    assert kept(ids.commit()) == [("a", 2), ("b", 2)]


def test_stream_time_goes_back_with_the_records_that_moved_it() -> None:
    ids = Ids()
    ids.accept("a", 100)
    ids.accept("bc", 200, 5_000)
    ids.take_back(1)
    assert ids.accept("d", 150) == "d"  # at 200, where "b" has moved it
    assert ids.accept("a", 1_100) == ""  # at 5,000 it would be beyond the horizon
    ids.accept("ef", 6_000)
    ids.take_back(0)
    assert kept(ids.commit()) == [("a", 100), ("b", 200), ("d", 200)]
    assert ids.accept("a", 1_100) == ""


def test_an_id_that_was_accepted_again_beyond_the_horizon_gets_its_former_time_back() -> None:
    ids = Ids()
    ids.accept("abc", 10, 20, 30)
    assert ids.accept("dabe", 1_500) == "dabe"
    ids.take_back(2)
    # "a" was accepted again, and stays so; "b" is as it was before, ahead of ids of a later time.
    assert kept(ids.commit()) == [("b", 20), ("c", 30), ("a", 1_500), ("d", 1_500)]
    assert ids.remembered("abcde", 1_500) == "ad"
    assert ids.accept("b", 1_500) == "b"


@pytest.mark.parametrize("begin", range(1, 5))
def test_an_id_that_one_batch_accepts_several_times_is_as_it_was_before_those_taken_back(begin: int) -> None:
    ids = Ids()
    times = [10, 2_000, 4_000, 6_000]
    assert ids.accept("aaaa", *times) == "aaaa"
    if begin < 4:
        ids.take_back(begin)
    assert kept(ids.commit()) == [("a", times[begin - 1])]
    assert ids.accept("aaaa", *times) == "aaaa"[begin:]


def test_a_committed_id_that_is_accepted_again_and_taken_back_keeps_its_committed_time() -> None:
    ids = Ids()
    ids.accept("a", 10)
    ids.commit()
    assert ids.accept("a", 2_000) == "a"
    ids.take_back(0)
    assert ids.commit() == []
    assert ids.remembered("a", 1_010) == "a"
    assert ids.remembered("a", 1_011) == ""


def test_ids_that_are_taken_back_and_come_again_make_the_same_changelog_as_if_they_had_not() -> None:
    random = Random(7)
    undone, straight = Ids(), Ids()
    time_ms = 0
    for _ in range(400):
        letters = random.choices("abcdefghijklm", k=random.randint(1, 9))
        times = [time_ms := time_ms + random.choice((0, 0, 5, 300)) for _ in letters]
        times = [each - random.choice((0, 0, 400)) for each in times]
        begin, answers = 0, list[bool]()
        while begin < len(letters):
            stop = random.randint(begin, len(letters))
            answers += undone.answers("".join(letters[begin:]), times[begin:])[: stop - begin]
            if stop < len(letters):
                undone.take_back(stop - begin)
            begin = stop
        assert answers == straight.answers("".join(letters), times)
        assert undone.repeats == straight.repeats
        if random.random() < 0.2:
            assert kept(undone.commit()) == kept(straight.commit())
    assert [key for key, _ in undone.changelog] == [key for key, _ in straight.changelog]
    assert sum(value is None for _, value in undone.changelog) > 10  # chunks that have expired


def test_a_filter_that_is_too_small_for_all_ids_is_not_filled_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids, read = Ids(within=DAY), Counter[bytes]()
    get = ids.store.get

    def counting(key: bytes) -> bytes | None:
        read[key[:1]] += 1
        return get(key)

    monkeypatch.setattr(ids.store, "get", counting)
    ids.table.filter_bytes(1024)  # for 800 ids at the full effect
    batches, size = 300, 100
    for first in range(0, batches * size, size):
        new = [Random(number).randbytes(16) for number in range(first, first + size)]
        assert ids.accepted.accept(new, [1] * size) is None
        ids.commit()
    # A commit looks at the oldest chunk, for expired ids, and at the place of its own. And the filter is filled when the ids
    # have doubled only.
    assert read[b"r"] <= 4 * batches


def test_a_chunk_under_the_number_of_a_deleted_one_takes_the_place_of_its_ids_in_an_older_copy() -> None:
    """All chunks were deleted, and a restarted process counts from 0 again."""
    ids, copy = Ids(), MemoryStores().open("copy", 0)
    ids.accept("ab", 0)
    ids.commit()
    copy.write(list(expanded(copy, ids.changelog)), b"")
    read_to = len(ids.changelog)
    ids.accepted.left_out(10_000)
    ids.commit()
    ids.table = table_over(ids.store, ids.within)
    ids.accept("bc", 10_000)
    ids.commit()
    # As a restore applies a batch: the last value of each key.
    copy.write(list(expanded(copy, dict(ids.changelog[read_to:]).items())), b"")
    assert rows(copy) == rows(ids.store)


@pytest.mark.parametrize("sizes", [(1 << 16, 1 << 10), (1 << 10, 1 << 16)])
def test_ids_are_known_whatever_memory_the_filter_is_given_meanwhile(sizes: Sequence[int]) -> None:
    ids = Ids(within=DAY)
    known = [Random(number).randbytes(16) for number in range(3_000)]
    for first in range(0, 3_000, 100):
        ids.table.filter_bytes(sizes[first // 1_000 % 2])
        assert ids.accepted.accept(known[first : first + 100], [1] * 100) is None
        ids.commit()
        before = known[max(0, first - 500) : first + 100]
        assert ids.accepted.accept(before, [1] * len(before)) == [False] * len(before)


# ---- what ids cost ------------------------------------------------------------------------------------------------------

COUNT, COMMITTED_AT_ONCE = 200_000, 5_000


@pytest.fixture
def rocks(tmp_path: Path) -> Iterator[RocksStores]:
    stores = RocksStores(tmp_path)
    yield stores
    stores.close()


@pytest.mark.parametrize(
    ("ids_a_ms", "topic_bytes", "disk_bytes"),
    [(10, 17, 45), (1, 28, 48)],
    ids=["ten ids a millisecond", "an id a millisecond"],
)
def test_ids_take_no_more_room_than_the_documentation_says(
    ids_a_ms: int,
    topic_bytes: int,
    disk_bytes: int,
    rocks: RocksStores,
    record_property: Callable[[str, object], None],
) -> None:
    random = Random(1)
    store = rocks.open("ids", 0)
    ids = Ids(store, DAY)
    for first in range(0, COUNT, COMMITTED_AT_ONCE):
        numbers = range(first, first + COMMITTED_AT_ONCE)
        new = [UUID(int=random.getrandbits(128), version=4).bytes for _ in numbers]
        assert ids.accepted.accept(new, [1 + number // ids_a_ms for number in numbers]) is None
        ids.commit()
    topic = sum(len(key) + len(value or b"") for key, value in ids.changelog) / COUNT
    store.relieve(wait=True)
    flushed = bytes_of(store) / COUNT
    store._rows.compact_range(None, None)
    compacted = bytes_of(store) / COUNT
    for name, value in (("topic", topic), ("flushed", flushed), ("compacted", compacted)):
        record_property(f"bytes_an_id_{name}", round(value, 1))
    assert topic == pytest.approx(topic_bytes, abs=0.5)
    assert flushed == pytest.approx(disk_bytes, abs=5)
    assert compacted <= flushed


def bytes_of(store: RocksStore) -> int:
    """The size of the files with rows; those that compaction has replaced stay for a moment, and longer on a busy machine."""
    return sum(file["size"] for file in store._rows.live_files())
