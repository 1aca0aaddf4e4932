"""Small Parquet files are merged while the sink writes: readers of commits have each row once at any time."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from streamtable import Long, Stream, String
from streamtable.errors import Migrated
from streamtable_sinks import Sink, SinkChange, SinkPartition, SinkSource
from streamtable_sinks.commands import app
from streamtable_sinks.parquet import (
    CompactionLimits,
    Parquet,
    committed_files,
    compact,
    compaction,
    read_rows,
)
from streamtable_testing import Tester

EVENTS = Stream("events", String(), Long())
SOURCE = SinkSource("out", "events", False, String(), Long())
PLACE = SinkPartition("out", "events", "id", 0)
NOW = datetime.now(UTC)
LATER = NOW + timedelta(hours=25)


class Writer:
    """A process of a sink that writes a file for each value."""

    def __init__(self, folder: Path, schema: pa.Schema | None = None) -> None:
        columns = None if schema is None else lambda _, value: {"value": value}
        self.target = Parquet(folder, columns=columns, schema=schema)
        self.target.open(SOURCE)
        taken = self.target.take(PLACE, "writer")
        self.epoch, self.position = taken.epoch, taken.position
        if self.position is None:
            self.target.write(PLACE, self.epoch, None, 0, ())
            self.position = 0

    def write(self, *values: int) -> None:
        for value in values:
            assert self.position is not None
            change = SinkChange("a", value, self.position, 0)
            self.target.write(PLACE, self.epoch, self.position, self.position + 1, [change])
            self.position += 1


def values(folder: Path) -> list[int]:
    found: list[int] = read_rows(folder)["value"].to_pylist()
    return found


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("events-00000/*.parquet"))


def test_small_files_become_one_and_the_sink_goes_on_in_the_middle(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.write(*range(5))
    (done,) = compact(tmp_path, NOW)
    assert (done.place.sink, done.merged, done.into, done.deleted) == ("out", 5, 1, 0)
    assert len(committed_files(tmp_path)) == 1
    writer.write(5, 6)  # with the entry that it knew before
    assert values(tmp_path) == list(range(7))
    (done,) = compact(tmp_path, NOW)
    assert (done.merged, done.into) == (3, 1)
    assert values(tmp_path) == list(range(7))
    assert Writer(tmp_path).position == 7
    assert [each.merged for each in compact(tmp_path, NOW)] == [0]


def test_large_files_stay_and_keep_their_place(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.write(0, 1)
    large = [SinkChange("a", value, value, 0) for value in range(2, 5_000)]
    writer.target.write(PLACE, writer.epoch, 2, 5_000, large)
    writer.position = 5_000
    writer.write(5_000, 5_001)
    before = committed_files(tmp_path)
    limits = CompactionLimits(small=(tmp_path / before[2]).stat().st_size, target=1 << 20)
    (done,) = compact(tmp_path, NOW, limits=limits)
    assert (done.merged, done.into) == (4, 2)
    assert committed_files(tmp_path)[1] == before[2]
    assert values(tmp_path) == list(range(5_002))


def test_a_merged_file_is_not_larger_than_its_target(tmp_path: Path) -> None:
    Writer(tmp_path).write(*range(6))
    size = max(each.stat().st_size for each in files(tmp_path))
    (done,) = compact(tmp_path, NOW, limits=CompactionLimits(target=2 * size))
    assert (done.merged, done.into) == (6, 3)
    assert values(tmp_path) == list(range(6))


def test_files_of_different_schemas_are_not_mixed(tmp_path: Path) -> None:
    Writer(tmp_path).write(0, 1)
    other = Writer(tmp_path, pa.schema([("value", pa.int32())]))
    other.write(2, 3)
    (done,) = compact(tmp_path, NOW)
    assert (done.merged, done.into) == (4, 2)
    kinds = [pq.read_schema(tmp_path / each).field("value").type for each in committed_files(tmp_path)]
    assert kinds == [pa.int64(), pa.int32()]


def test_merged_files_are_deleted_when_no_reader_has_listed_them_for_long(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.write(0, 1, 2)
    listed = committed_files(tmp_path)
    list(compact(tmp_path, NOW))
    assert all((tmp_path / each).exists() for each in listed)
    writer.write(3, 4)
    (done,) = compact(tmp_path, LATER)
    assert done.merged == 3
    assert done.deleted in {3, 6}  # of this run too, as far as the clocks of store and test are the same
    assert not any((tmp_path / each).exists() for each in listed)
    assert values(tmp_path) == list(range(5))


def test_a_file_that_may_still_be_committed_is_not_deleted(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.write(0, 1)
    frozen = writer.target._write_file(PLACE, [SinkChange("a", 2, 2, 0)])
    list(compact(tmp_path, NOW))
    list(compact(tmp_path, LATER))
    assert (tmp_path / frozen).exists()


def test_a_former_owner_writes_nothing_after_a_compaction(tmp_path: Path) -> None:
    zombie = Writer(tmp_path)
    zombie.write(0, 1)
    owner = Writer(tmp_path)
    list(compact(tmp_path, NOW))
    with pytest.raises(Migrated):
        zombie.write(9)
    owner.write(2)
    assert values(tmp_path) == [0, 1, 2]


@pytest.fixture
def puts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, Callable[[], object]], None]]:
    """Lets something happen before the n-th object that is put."""
    number, planned = 0, dict[int, Callable[[], object]]()

    def put(*arguments: Any, **options: Any) -> Any:
        nonlocal number
        number += 1
        if (happens := planned.pop(number, None)) is not None:
            happens()
        return real(*arguments, **options)

    real = obstore.put
    monkeypatch.setattr(obstore, "put", put)

    def plan(at: int, happens: Callable[[], object]) -> None:
        planned[number + at] = happens

    yield plan
    assert not planned


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_compaction_that_dies_loses_and_doubles_nothing(
    at: int, tmp_path: Path, puts: Callable[[int, Callable[[], object]], None]
) -> None:
    Writer(tmp_path).write(*range(6))
    size = max(each.stat().st_size for each in files(tmp_path))
    limits = CompactionLimits(target=3 * size)

    def die() -> None:
        raise KeyboardInterrupt

    puts(at, die)  # each group puts a file and an entry
    with pytest.raises(KeyboardInterrupt):
        list(compact(tmp_path, NOW, limits=limits))
    assert values(tmp_path) == list(range(6))
    list(compact(tmp_path, NOW, limits=limits))
    assert len(committed_files(tmp_path)) == 2
    assert values(tmp_path) == list(range(6))


@pytest.mark.parametrize("at", [1, 2])
def test_what_the_sink_writes_meanwhile_is_kept(
    at: int, tmp_path: Path, puts: Callable[[int, Callable[[], object]], None]
) -> None:
    writer = Writer(tmp_path)
    writer.write(0, 1, 2)
    puts(at, lambda: writer.write(3))
    list(compact(tmp_path, NOW))
    assert len(committed_files(tmp_path)) == 2
    assert values(tmp_path) == [0, 1, 2, 3]


@pytest.mark.parametrize("at", [1, 2])
def test_two_compactions_at_once_merge_once(
    at: int, tmp_path: Path, puts: Callable[[int, Callable[[], object]], None]
) -> None:
    Writer(tmp_path).write(0, 1, 2)
    others: list[compaction.Compacted] = []
    puts(at, lambda: others.extend(compact(tmp_path, NOW)))
    (done,) = compact(tmp_path, NOW)
    assert (done.merged, others[0].merged) == (0, 3)
    assert values(tmp_path) == [0, 1, 2]
    assert len(files(tmp_path)) == 4


def test_an_entry_whose_request_a_client_below_has_repeated_keeps_its_merged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Writer(tmp_path).write(0, 1, 2)

    def put(*arguments: Any, **options: Any) -> Any:
        """The store has carried the first request out, and answered with an error."""
        if options.get("mode") == "create":
            real(*arguments, **options)
        return real(*arguments, **options)

    real = obstore.put
    monkeypatch.setattr(obstore, "put", put)
    (done,) = compact(tmp_path, NOW)
    assert (done.merged, done.into) == (3, 1)
    assert values(tmp_path) == [0, 1, 2]


def test_a_compaction_between_the_batches_of_a_sink_takes_no_partition_from_it(tmp_path: Path) -> None:
    with Tester() as tester:
        out = Sink("out", EVENTS, Parquet(tmp_path), max_wait=0.0)
        tester.run(out, partitions=1)
        for number in range(6):
            tester.emit(EVENTS, "a", number)
            tester.advance(1)
            list(compact(tmp_path, NOW))
        tester.stop(out)
    assert values(tmp_path) == list(range(6))
    assert len(committed_files(tmp_path)) == 1


def test_the_command_merges_and_says_what_it_has_done(tmp_path: Path) -> None:
    Writer(tmp_path).write(0, 1, 2)
    ran = CliRunner().invoke(app, ["compact", str(tmp_path), "--json"])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout) == [
        {"sink": "out", "topic": "events", "partition": 0, "merged": 3, "into": 1, "deleted": 0}
    ]
    shown = CliRunner().invoke(app, ["compact", str(tmp_path), "--keep-hours", "0"])
    assert "deleted" in shown.output
    assert values(tmp_path) == [0, 1, 2]
    assert len(files(tmp_path)) == 1
