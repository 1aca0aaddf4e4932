"""Versions of a program that keep other kinds of rows, or read them with other codecs, over each store."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from microbatch import Batch, InMemoryStore, MicroBatch, Rows, Send
from microbatch.kinds import Kinds
from microbatch.stores.memory import MemoryDriver, MemoryServer
from streamtable import Avro, Bytes, Json, Long, Plain, Stream, String, Typed
from streamtable.base.types import Committed, NextOffset
from streamtable.errors import StateLost, StateMeaningChanged
from streamtable_testing import Tester

EVENTS = Stream("events", String(), Json())
MORE = Stream("more", String(), Json())
TOTALS = Rows("totals", value=Long())
SUMS = Rows("sums", value=Long())


def counting(*kinds: Rows[int], inputs: tuple[Stream[str, Any], ...] = (EVENTS,)) -> MicroBatch:
    """Counts the records of each key in all of its kinds of rows."""

    def process(batch: Batch, send: Send) -> None:
        for rows in map(batch.rows, kinds):
            for record in batch.records:
                rows.put(record.key, (rows.get(record.key) or 0) + 1)

    return MicroBatch("g", inputs=inputs, process=process, rows=kinds, max_wait=0.1)


class Versions:
    """Runs one version of a group after another over the same Kafka and the same store."""

    def __init__(self, tester: Tester, kind: str) -> None:
        self.tester, self.kind = tester, kind
        self.server = MemoryServer()
        self.running: MicroBatch | None = None
        self.tasks: Any = None

    def run(self, group: MicroBatch) -> None:
        """Stop the version that runs, and start this one."""
        first = self.running is None
        if self.running is not None:
            self.tester.stop(self.running)
        self.running = group
        self.tasks = group.custom_tasks if self.kind == "embedded" else self._central(group)
        if first:
            self.tester.run(group, tasks=self.tasks)
        else:
            self.tester.start(group, tasks=self.tasks)

    def _central(self, group: MicroBatch) -> InMemoryStore:
        store = InMemoryStore(
            group, plain=self.kind == "plain", driver=lambda: MemoryDriver(self.server, tenant="g")
        )
        store.server = self.server
        return store

    def rows(self, kind: Rows[Any]) -> dict[str, Any]:
        """The committed rows of a kind."""
        assert self.running is not None
        if self.kind == "embedded":
            return kind.of(self.tester.table(self.running))
        return self.tasks.rows(kind, self.tester.kafka.committed("g"))  # type: ignore[no-any-return] # of any kind


@pytest.fixture(params=["embedded", "central", "plain"])
def versions(tester: Tester, request: pytest.FixtureRequest) -> Versions:
    return Versions(tester, request.param)


# ---- what the rows mean --------------------------------------------------------------------------------------------


class Sold(NamedTuple):
    sold: int
    bought: int


class Bought(NamedTuple):
    bought: int
    sold: int


def pair(*names: str) -> dict[str, Any]:
    """A schema of these fields; the second has a default."""
    fields = [{"name": names[0], "type": "long"}]
    fields += [{"name": name, "type": "long", "default": 0} for name in names[1:]]  # type: ignore[dict-item] # a number
    return {"type": "record", "name": "Pair", "fields": fields}


def storing(codec: Any, row: Any, seen: list[Any]) -> MicroBatch:
    rows = Rows("r", value=codec)

    def process(batch: Batch, send: Send) -> None:
        for each in batch.records:
            seen.append(batch.rows(rows).get(each.key))
            batch.rows(rows).put(each.key, row)

    return MicroBatch("g", inputs=[EVENTS], process=process, rows=[rows], max_wait=0.1)


@pytest.mark.parametrize(
    ("before", "row", "after"),
    [
        (Avro(pair("x", "y"), Plain()), {"x": 1, "y": 2}, Avro(pair("y", "x"), Plain())),
        (Typed(Sold), Sold(1, 2), Typed(Bought)),
        (Typed(bytes), b"abc", Typed(str)),
        (String(), "abc", Bytes()),
    ],
)
def test_rows_that_an_edited_codec_would_misread_stop_the_process_at_its_start(
    versions: Versions, before: Any, row: Any, after: Any
) -> None:
    seen: list[Any] = []
    versions.run(storing(before, row, seen))
    versions.tester.emit(EVENTS, "a", 1)
    with pytest.raises(StateMeaningChanged) as caught:
        versions.run(storing(after, None, seen))
    assert (caught.value.state, caught.value.group) == ("r", "g")
    assert seen == [None]


def test_a_schema_that_reads_the_older_rows_is_accepted(versions: Versions) -> None:
    seen: list[Any] = []
    longer = Avro(pair("x", "y"), history=[pair("x")])
    versions.run(storing(Avro(pair("x")), {"x": 1}, seen))
    versions.tester.emit(EVENTS, "a", 1)
    versions.run(storing(longer, {"x": 1, "y": 2}, seen))
    versions.tester.emit(EVENTS, "a", 2)
    versions.tester.emit(EVENTS, "a", 3)
    assert seen == [None, {"x": 1, "y": 0}, {"x": 1, "y": 2}]


def test_a_process_that_starts_again_with_the_same_codecs_continues(versions: Versions) -> None:
    for _ in range(3):
        versions.run(counting(TOTALS, SUMS))
        versions.tester.emit(EVENTS, "a", 1)
    assert versions.rows(TOTALS) == versions.rows(SUMS) == {"a": 3}


# ---- up to where they have seen the inputs -------------------------------------------------------------------------


def test_a_kind_that_lacks_records_of_a_version_without_it_is_refused(versions: Versions) -> None:
    versions.run(counting(TOTALS, SUMS))
    versions.tester.emit(EVENTS, "a", 1)
    versions.run(counting(TOTALS))
    versions.tester.emit(EVENTS, "a", 2)
    with pytest.raises(
        StateLost, match=r"'sums', .* without them has handled 'events' up to offset 2"
    ) as caught:
        versions.run(counting(TOTALS, SUMS))
    assert (caught.value.topic, caught.value.offset) == ("events", 1)


def test_a_kind_that_lacks_records_of_a_version_without_any_is_refused(versions: Versions) -> None:
    versions.run(counting(SUMS))
    versions.tester.emit(EVENTS, "a", 1)
    versions.run(counting())
    versions.tester.emit(EVENTS, "a", 2)
    with pytest.raises(StateLost, match="without"):
        versions.run(counting(SUMS))


def test_a_kind_comes_back_if_nothing_was_handled_without_it(versions: Versions) -> None:
    versions.run(counting(TOTALS, SUMS))
    versions.tester.emit(EVENTS, "a", 1)
    versions.run(counting(TOTALS))
    versions.run(counting(TOTALS, SUMS))
    versions.tester.emit(EVENTS, "a", 2)
    assert versions.rows(TOTALS) == versions.rows(SUMS) == {"a": 2}


def test_a_kind_that_is_new_begins_with_the_records_from_then_on(versions: Versions) -> None:
    versions.run(counting(TOTALS))
    versions.tester.emit(EVENTS, "a", 1)
    versions.run(counting(TOTALS, SUMS))
    versions.tester.emit(EVENTS, "a", 2)
    assert (versions.rows(TOTALS), versions.rows(SUMS)) == ({"a": 2}, {"a": 1})


def test_records_of_another_input_that_were_handled_without_a_kind_count_too(versions: Versions) -> None:
    both = (EVENTS, MORE)
    versions.tester.create(EVENTS, MORE)
    versions.run(counting(TOTALS, SUMS))
    versions.tester.emit(EVENTS, "a", 1)
    versions.run(counting(TOTALS, inputs=both))
    versions.tester.emit(MORE, "a", 1)
    versions.run(counting(TOTALS, SUMS))  # which does not read that input
    with pytest.raises(StateLost, match="'more' up to offset 1"):
        versions.run(counting(TOTALS, SUMS, inputs=both))


def offsets(**of: int) -> dict[str, Committed | None]:
    return {topic: Committed(NextOffset(offset), "") for topic, offset in of.items()}


@pytest.fixture
def kept() -> Callable[..., bytes]:
    def record(before: bytes | None, *kinds: Rows[int], **of: int) -> bytes:
        return Kinds(counting(*kinds), 0, offsets(**of)).record(before)

    return record


def test_the_record_of_a_kind_is_kept_while_several_versions_do_not_know_it(
    kept: Callable[..., bytes],
) -> None:
    first = kept(None, TOTALS, SUMS, events=5)
    without = kept(kept(first, TOTALS, events=5), TOTALS, events=9)
    with pytest.raises(StateLost):
        kept(without, SUMS, events=9)
    assert kept(kept(without, TOTALS, SUMS, events=5), TOTALS, SUMS, events=9) == first
