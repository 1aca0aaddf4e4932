"""Index entries of appended rows in chunks: which are written, read and deleted, and the rows fall due as by entries alone."""

from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from streamtable import Bytes, State
from streamtable.engine.due.chunks import chunks_of, entries_in, entry_of
from streamtable.engine.due.index import DueIndex, key_of
from streamtable.engine.firing.pending import PendingRows
from streamtable.engine.firing.runner import DueState
from streamtable.engine.named.state import KeptState
from streamtable.graph.due import Due
from streamtable.handlers.due_rows import DueRows
from streamtable.store.memory import MemoryStore, MemoryStores

SPAN_MS = 8_192
ALL = 1 << 40


def due_ms(key: bytes) -> int:
    """Return the due time of a row: its key begins with it."""
    return int.from_bytes(key[:8])


def key_at(time_ms: int, name: str = "") -> bytes:
    return time_ms.to_bytes(8) + name.encode()


class Kept:
    """A state whose rows fall due by their keys, as a task works with it; `reopened` is what the next process has."""

    def __init__(self, store: MemoryStore | None = None, position: tuple[bytes, bytes] = (b"", b"")) -> None:
        self.store: Any = store or MemoryStores().open("t", 0)
        due = Due[bytes, bytes](
            lambda key, _: due_ms(key),
            lambda _: None,
            by_key=True,
            times=lambda keys: list(map(due_ms, keys)),
        )
        self.state = KeptState(
            State("t", key=Bytes(), value=Bytes(), due=due), self.store, 1_000_000, 1 << 20
        )
        assert self.state.index is not None
        self.index: DueIndex = self.state.index
        self.index.forget(*position)
        self.index.look_for_kept()
        self.noted = position

    def append(self, *keys: bytes) -> None:
        self.state.table.append(keys, [b"row"] * len(keys), list(map(due_ms, keys)))

    def commit(self) -> list[bytes]:
        """Commit. Returns the keys that were written to the store."""
        self.index.look()
        self.index.before_commit()
        rows = list(self.state.rows(self.state.changes()))
        self.store.write(rows, b"")
        self.state.committed()
        self.noted = self.index.position
        self.index.committed()
        return [key for key, _ in rows]

    def rewind(self) -> None:
        self.state.forget()
        self.index.forget(*self.noted)

    def fire(self, until_ms: int, limit: int) -> list[bytes]:
        """Delete the next due rows, as the engine does. Returns their keys."""
        self.index.look()
        entries = self.index.take(until_ms, limit)
        keys = list(map(key_of, entries))
        there = [key for key, row in zip(keys, self.state.table.peek(keys), strict=True) if row is not None]
        for key in there:
            self.state.table.put(key, None)
        for entry in entries:
            self.index.fired(entry)
        return there

    def fire_all(self, until_ms: int, limit: int = 2) -> list[bytes]:
        """Fire until nothing is due."""
        fired = list[bytes]()
        while True:
            self.index.look()
            first = self.index.first_ms
            if first is None or first > until_ms:
                return fired
            fired += self.fire(until_ms, limit)

    def reopened(self) -> "Kept":
        return Kept(self.store, self.noted)

    def in_store(self, prefix: bytes) -> list[bytes]:
        with self.store.scan(prefix, bytes([prefix[0] + 1])) as rows:
            return [key[1:] for key, _ in rows]


def chunk(keys: Iterable[bytes]) -> bytes:
    return b"c" + min(entry_of(due_ms(key), key) for key in keys)


def test_rows_that_are_appended_share_an_entry() -> None:
    kept = Kept()
    keys = [key_at(9, "a"), key_at(7, "c"), key_at(7, "b")]
    kept.append(*keys[:2])
    kept.append(keys[2])
    assert kept.commit() == [chunk(keys), *(b"r" + key for key in sorted(keys))]
    assert kept.in_store(b"d") == []


def test_a_chunk_holds_rows_that_are_due_within_eight_seconds() -> None:
    times = [5, SPAN_MS - 1, SPAN_MS, 10 * SPAN_MS, 10 * SPAN_MS + 3]
    made = chunks_of([([key_at(each) for each in times], times)])
    assert [[due_ms(key_of(entry)) for entry in entries_in(value)] for _, value in made] == [
        times[:2],
        times[2:3],
        times[3:],
    ]


def test_times_outside_of_what_an_entry_holds_count_as_its_bounds() -> None:
    ((_, value),) = chunks_of([([b"a"], [-7])])
    assert entries_in(value) == [entry_of(-7, b"a")]


def test_rows_of_chunks_come_in_the_order_of_their_times_with_those_that_were_put() -> None:
    kept = Kept()
    kept.append(*(key_at(each, "appended") for each in (1, 4, 9)))
    kept.state.table.put(key_at(3, "put"), b"row")
    kept.commit()
    kept.append(*(key_at(each, "appended") for each in (2, 7, 8)))
    kept.state.table.put(key_at(5, "put"), b"row")
    kept.commit()
    kept.append(key_at(6, "new"))
    assert list(map(due_ms, kept.fire_all(8, limit=1))) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert kept.index.first_ms == 9


def test_a_chunk_is_deleted_with_the_last_of_its_entries() -> None:
    kept = Kept()
    keys = [key_at(each) for each in (1, 2, 3)]
    kept.append(*keys)
    kept.commit()
    assert kept.fire_all(2) == keys[:2]
    kept.commit()
    assert kept.in_store(b"c") == [chunk(keys)[1:]]
    assert kept.fire_all(3) == keys[2:]
    kept.commit()
    assert kept.in_store(b"c") == []
    assert kept.index.first_ms is None


def test_a_chunk_of_which_a_part_has_fired_goes_on_with_the_rest_after_a_restart() -> None:
    kept = Kept()
    keys = [key_at(each) for each in (1, 2, 3)]
    kept.append(*keys)
    kept.commit()
    kept.fire_all(2)
    kept.commit()
    assert kept.reopened().fire_all(ALL) == keys[2:]


def test_what_was_fired_in_a_commit_that_is_undone_fires_again() -> None:
    kept = Kept()
    keys = [key_at(each) for each in (1, 2, 3)]
    kept.append(*keys)
    kept.commit()
    assert kept.fire_all(2) == keys[:2]
    kept.rewind()
    assert kept.fire_all(ALL) == keys


def test_rows_that_are_late_for_the_clock_fire_from_a_chunk_too() -> None:
    kept = Kept()
    kept.append(key_at(50), key_at(60))
    kept.commit()
    assert kept.fire_all(55) == [key_at(50)]
    kept.commit()
    kept.append(key_at(20), key_at(30))
    kept.commit()
    assert kept.fire_all(55) == [key_at(20), key_at(30)]
    assert kept.fire_all(ALL) == [key_at(60)]


def test_only_chunks_that_are_needed_are_in_memory_when_the_clock_leaps() -> None:
    kept = Kept()
    for number in range(20):
        kept.append(*(key_at(number * SPAN_MS + each) for each in range(5)))
        kept.commit()
    assert len(kept.fire(ALL, 3)) == 3
    assert len(kept.index._chunks._reached) == 1
    fired = kept.fire_all(ALL, limit=4)
    assert fired == sorted(fired)
    assert len(fired) == 97


def test_chunks_whose_rows_another_process_has_fired_take_no_memory_and_are_deleted() -> None:
    kept = Kept()
    for number in range(20):
        kept.append(*(key_at(number * SPAN_MS + each) for each in range(5)))
        kept.commit()
    kept = Kept(kept.store, (entry_of(ALL, b""), b""))
    kept.fire(ALL, 3)
    assert sum(len(each.entries) for each in kept.index._chunks._reached.values()) == 20
    kept.commit()
    assert kept.in_store(b"c") == []


def test_an_entry_of_a_row_that_is_gone_does_not_count() -> None:
    kept = Kept()
    keys = [key_at(each) for each in (1, 2, 3)]
    kept.append(*keys)
    kept.commit()
    kept.state.table.put(keys[1], None)
    kept.commit()
    assert kept.reopened().fire_all(ALL) == [keys[0], keys[2]]


def test_a_row_that_is_written_again_fires_once() -> None:
    kept = Kept()
    kept.append(key_at(1), key_at(2))
    kept.commit()
    kept.state.table.put(key_at(1), b"other")
    kept.commit()
    assert kept.fire_all(ALL, limit=10) == [key_at(1), key_at(2)]


def test_rows_in_chunks_are_counted_until_they_have_fired() -> None:
    kept = Kept()
    for number in range(3):
        kept.append(*(key_at(100 * number + each) for each in range(10)))
        kept.state.table.put(key_at(100 * number + 50), b"row")
        kept.commit()
    assert PendingRows(kept.index).step(1_000) == 33
    kept.fire_all(104)
    kept.commit()
    counting = PendingRows(kept.index)
    assert [counting.step(7) for _ in range(6)][-1] == 33 - 11 - 5


def test_rows_that_are_gone_get_no_tombstones() -> None:
    kept, handed = Kept(), list[bytes]()
    keys = [key_at(each) for each in (1, 2)]
    kept.append(*keys)
    kept.commit()
    kept.store.write([(b"r" + keys[0], None)], b"")  # as after a crash: the changelog knows no chunks
    state = kept.state.state
    due = replace(cast("Any", state.due), handler=lambda rows: handed.extend(raw for raw, _, _ in rows.rows))
    rows: DueRows[bytes, bytes] = DueRows(state, "t", 0, cast("Any", SimpleNamespace(dated={}, emit=None)))
    firing = DueState(kept.state, due, kept.index, rows, lambda: ALL, None)
    assert firing.call(kept.index.take(ALL, 10), ALL, careful=False) == 2
    assert handed == keys[1:]
    assert kept.state.changes() == [(keys[1], None)]


def test_a_store_with_an_entry_for_each_row_goes_on_with_chunks() -> None:
    kept = Kept()
    former = [key_at(each, "former") for each in (1, 3, 20_000)]
    kept.store.write(
        [row for key in former for row in ((b"d" + entry_of(due_ms(key), key), b""), (b"r" + key, b"row"))],
        b"",
    )
    kept.append(key_at(2), key_at(10_000))
    kept.commit()
    assert kept.fire_all(ALL) == sorted([*former, key_at(2), key_at(10_000)])
    kept.commit()
    assert kept.in_store(b"d") == []


def test_the_last_due_time_covers_those_of_chunks() -> None:
    kept = Kept()
    assert kept.index.last_ms() is None
    kept.append(key_at(5), key_at(20_000))
    kept.commit()
    assert 20_000 <= (kept.index.last_ms() or 0) < 20_000 + SPAN_MS


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(0, 60_000), min_size=1, max_size=6)),
        st.tuples(st.just("put"), st.integers(0, 60_000)),
        st.tuples(st.sampled_from(["write again", "delete"]), st.integers(0, 1_000)),
        st.tuples(st.sampled_from(["commit", "rewind", "restart"]), st.none()),
        st.tuples(st.just("fire"), st.tuples(st.integers(0, 60_000), st.integers(1, 5))),
    ),
    max_size=40,
)


class Model:
    """The expected rows: their keys, as they are and as they were at the last commit."""

    def __init__(self) -> None:
        self.rows: set[bytes] = set()
        self.committed: set[bytes] = set()
        self.names = 0

    def new(self, time_ms: int) -> bytes:
        self.names += 1
        key = key_at(time_ms, str(self.names))
        self.rows.add(key)
        return key


def _change(kept: Kept, model: Model, what: str, given: Any) -> None:
    if what == "append":
        kept.append(*(model.new(time_ms) for time_ms in given))
    elif what == "put":
        kept.state.table.put(model.new(given), b"row")
    elif model.rows:
        key = sorted(model.rows)[given % len(model.rows)]
        if what == "delete":
            kept.state.table.put(key, None)
            model.rows.discard(key)
        else:
            kept.state.table.put(key, b"again")


@given(steps)
def test_rows_fall_due_once_and_in_order_whatever_is_in_chunks(steps: list[tuple[str, Any]]) -> None:
    kept, model = Kept(), Model()
    for what, given_ in steps:
        if what == "commit":
            kept.commit()
            model.committed = set(model.rows)
        elif what in {"rewind", "restart"}:
            kept.rewind()
            kept = kept.reopened() if what == "restart" else kept
            model.rows = set(model.committed)
        elif what == "fire":
            until_ms, limit = given_
            due = sorted(key for key in model.rows if due_ms(key) <= until_ms)
            assert kept.fire_all(until_ms, limit) == due
            model.rows.difference_update(due)
        else:
            _change(kept, model, what, given_)
    assert kept.fire_all(ALL) == sorted(model.rows)
    kept.commit()
    assert kept.fire_all(ALL) == []
    kept.commit()
    assert kept.in_store(b"c") == kept.in_store(b"d") == kept.in_store(b"r") == []
