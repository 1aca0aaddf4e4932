"""Tables of Iceberg as a target: they pass the conformance suite, and their snapshots have each record once."""

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa
import pytest
from libs.streamtable_sinks.tests.starts import MEMBERS, start_at_once
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table import Table
from pyiceberg.utils.config import Config

from streamtable import Avro, Long, Stream, String
from streamtable.errors import ConfigurationError, Migrated, RetryLater
from streamtable_sinks import Sink, SinkChange, SinkPartition, SinkSource, SinkTarget
from streamtable_sinks.iceberg import Iceberg, commit, target
from streamtable_sinks.testing import VALUE, TargetSuite
from streamtable_testing import Tester

EVENTS = Stream("events", String(), Long())
SCHEMA = pa.schema([("key", pa.string()), ("number", pa.int64()), ("text", pa.string())])
PLACE = SinkPartition("out", "events", "id", 0)
R = TypeVar("R")
MakeCatalog = Callable[[], SqlCatalog]
MakeTarget = Callable[..., Iceberg]


@pytest.fixture
def catalogs(tmp_path: Path) -> Iterator[MakeCatalog]:
    """Makes clients of one catalog, as processes have them."""
    made: list[SqlCatalog] = []

    def make() -> SqlCatalog:
        options = {
            "uri": f"sqlite:///{tmp_path}/catalog.db",
            "warehouse": f"file://{tmp_path}/lake",
            "init_catalog_tables": "true" if not made else "false",
        }
        made.append(SqlCatalog("lake", **options))
        return made[-1]

    make()
    yield make
    for each in made:
        each.close()


def read(catalog: SqlCatalog, table: str = "lake.events") -> pa.Table:
    return catalog.load_table(table).scan().to_arrow().sort_by("_offset")


class TestConformance(TargetSuite):
    @pytest.fixture(autouse=True)
    def _catalogs(self, catalogs: MakeCatalog) -> None:
        self.catalogs = catalogs

    def client(self) -> SinkTarget:
        columns = lambda key, value: {"key": key, **value}  # noqa: E731 - short
        return Iceberg(self.catalogs(), "lake.suite", columns=columns, schema=SCHEMA, create=True)

    def numbers(self) -> Sequence[tuple[str, int]]:
        rows = read(self.catalogs(), "lake.suite")
        return list(zip(rows["key"].to_pylist(), rows["number"].to_pylist(), strict=True))

    def bad(self) -> SinkChange:
        return SinkChange("b", {"number": 1 << 70, "text": None}, 1, 0)


@pytest.fixture
def opened(catalogs: MakeCatalog) -> MakeTarget:
    """Makes opened targets of one table, as processes have them."""

    def make(kind: type[Iceberg] = Iceberg) -> Iceberg:
        made = kind(catalogs(), "lake.events", create=True)
        made.open(SinkSource("out", "events", False, String(), Long()))
        return made

    return make


def change(value: int) -> SinkChange:
    return SinkChange("a", value, value, 0)


def values(catalogs: MakeCatalog) -> list[int]:
    return [int(value) for value in read(catalogs())["value"].to_pylist()]


@pytest.mark.parametrize("step", ["rows-written", "begun", "offsets-sent", "committed", "ledger-written"])
def test_a_crash_at_any_step_leaves_each_record_once_in_the_table(
    step: str, catalogs: MakeCatalog, tmp_path: Path
) -> None:
    with Tester() as tester:
        out = Sink("out", EVENTS, Iceberg(catalogs(), "lake.events", create=True), max_wait=0.0)
        tester.crash(out, step)
        tester.run(out, partitions=1)
        for number in range(4):
            tester.emit_many(EVENTS, [("a", 2 * number), ("a", 2 * number + 1)])
            tester.start(out)
        tester.advance(2)
    assert values(catalogs) == list(range(8))
    files = [each.file.file_path for each in catalogs().load_table("lake.events").scan().plan_files()]
    assert duckdb.read_parquet(files).aggregate("count(*), sum(value)::bigint").fetchone() == (8, 28)


def test_a_commit_of_another_partition_in_between_is_no_conflict(
    catalogs: MakeCatalog, opened: MakeTarget
) -> None:
    one, other = opened(), opened()
    places = [PLACE, PLACE._replace(partition=1)]
    epochs = [each.take(place, "a").epoch for each, place in zip((one, other), places, strict=True)]
    for number in range(0, 6, 2):
        for client, place, epoch, offset in zip(
            (one, other), places, epochs, (number, number + 1), strict=True
        ):
            client.write(place, epoch, None if number == 0 else number, number + 2, [change(offset)])
    assert values(catalogs) == list(range(6))


def test_processes_that_commit_at_the_same_time_lose_nothing(
    catalogs: MakeCatalog, opened: MakeTarget
) -> None:
    failed: list[BaseException] = []

    def work(partition: int) -> None:
        place, client = PLACE._replace(partition=partition), opened()
        try:
            epoch = asked(lambda: client.take(place, "a").epoch)
            for number in range(4):
                rows = [change(10 * partition + number)]
                asked(partial(client.write, place, epoch, number or None, number + 1, rows))
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failed.append(error)

    def asked(call: Callable[[], R]) -> R:
        while True:
            try:
                return call()
            except RetryLater:  # SQLite's lock, or ten conflicts
                continue

    opened()
    threads = [threading.Thread(target=work, args=(partition,)) for partition in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert values(catalogs) == [10 * partition + number for partition in range(3) for number in range(4)]


class RepeatsRequests(SqlCatalog):
    """Sends each commit twice, as an HTTP client does when the answer to the first was lost."""

    def commit_table(self, *arguments: Any) -> Any:
        super().commit_table(*arguments)
        return super().commit_table(*arguments)


class LosesAnswers(SqlCatalog):
    """Commits, and then the answer is lost."""

    def commit_table(self, *arguments: Any) -> Any:
        super().commit_table(*arguments)
        raise CommitStateUnknownException("the gateway has timed out")


def test_after_a_lost_answer_the_position_says_that_the_batch_is_there(
    catalogs: MakeCatalog, opened: MakeTarget
) -> None:
    client = opened()
    epoch = client.take(PLACE, "a").epoch
    client.write(PLACE, epoch, None, 0, ())
    client._table.catalog.__class__ = LosesAnswers
    with pytest.raises(RetryLater, match="gateway"):
        client.write(PLACE, epoch, 0, 1, [change(0)])
    client._table.catalog.__class__ = SqlCatalog
    assert client.take(PLACE, "a").position == 1
    assert values(catalogs) == [0]


def frozen_during_a_write(zombie: Iceberg, owner: Iceberg, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the owner take the partition while another process is between its files and its commit; both write record 0."""
    epoch = zombie.take(PLACE, "zombie").epoch
    zombie.write(PLACE, epoch, None, 0, ())

    def slowly(table: Table, rows: pa.Table) -> Any:
        with monkeypatch.context() as other:
            other.setattr(target, "write_files", commit.write_files)
            owner.write(PLACE, owner.take(PLACE, "owner").epoch, 0, 1, [change(0)])
        return commit.write_files(table, rows)

    monkeypatch.setattr(target, "write_files", slowly)
    zombie.write(PLACE, epoch, 0, 1, [change(0)])


def test_a_former_owner_that_wakes_up_before_its_commit_writes_nothing(
    catalogs: MakeCatalog, opened: MakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Migrated, match="epoch 2 of owner"):
        frozen_during_a_write(opened(), opened(), monkeypatch)
    assert values(catalogs) == [0]


def test_a_commit_that_pyiceberg_repeats_without_comparing_doubles_rows(
    catalogs: MakeCatalog, opened: MakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    def repeated(table: Table, properties: dict[str, str], files: Any) -> bool:
        with (
            table.transaction() as all_or_nothing,
            all_or_nothing.update_snapshot(properties).fast_append() as made,
        ):
            for file in files:
                made.append_data_file(file)
        return True

    monkeypatch.setattr(target, "committed", repeated)
    frozen_during_a_write(opened(), opened(), monkeypatch)
    assert values(catalogs) == [0, 0]


def test_a_request_that_was_repeated_below_has_committed_once(
    catalogs: MakeCatalog, opened: MakeTarget
) -> None:
    client = opened()
    epoch = client.take(PLACE, "a").epoch
    client.write(PLACE, epoch, None, 0, ())
    client._table.catalog.__class__ = RepeatsRequests
    client.write(PLACE, epoch, 0, 1, [change(0)])
    assert values(catalogs) == [0]


def test_positions_are_found_behind_the_snapshots_of_other_writers(
    catalogs: MakeCatalog, opened: MakeTarget
) -> None:
    client = opened()
    epoch = client.take(PLACE, "a").epoch
    client.write(PLACE, epoch, None, 2, [change(0), change(1)])
    other = catalogs().load_table("lake.events")
    other.overwrite(other.scan().to_arrow())  # as a job that merges small files
    with pytest.raises(Migrated):
        client.write(PLACE, epoch, 0, 1, [change(9)])
    client.write(PLACE, epoch, 2, 3, [change(2)])
    assert values(catalogs) == [0, 1, 2]


def test_a_table_that_was_rolled_back_is_written_again_from_its_own_position(
    catalogs: MakeCatalog, tmp_path: Path
) -> None:
    with Tester() as tester:
        out = Sink("out", EVENTS, Iceberg(catalogs(), "lake.events", create=True), max_wait=0.0)
        tester.run(out, partitions=1)
        tester.emit(EVENTS, "a", 0)
        tester.advance(2)
        snapshot = catalogs().load_table("lake.events").current_snapshot()
        assert snapshot is not None
        tester.emit(EVENTS, "a", 1)
        tester.advance(2)
        tester.stop(out)
        catalogs().load_table("lake.events").manage_snapshots().rollback_to_snapshot(
            snapshot.snapshot_id
        ).commit()
        assert values(catalogs) == [0]
        tester.start(out)
        tester.emit(EVENTS, "a", 2)
        tester.advance(2)
    assert values(catalogs) == [0, 1, 2]


def test_a_missing_column_is_refused_at_the_start_with_the_statement_that_adds_it(
    catalogs: MakeCatalog,
) -> None:
    catalog = catalogs()
    catalog.create_namespace("lake")
    catalog.create_table(
        "lake.events", pa.schema([pa.field("id", pa.string(), nullable=False), ("number", pa.int32())])
    )
    source = SinkSource("out", "events", False, String(), VALUE)
    with pytest.raises(ConfigurationError) as refused:
        Iceberg(catalog, "lake.events").open(source)
    assert refused.value.message.splitlines()[1:] == [
        "ALTER TABLE lake.events ADD COLUMN text STRING;",
        "ALTER TABLE lake.events ADD COLUMN _partition INT;",
        "ALTER TABLE lake.events ADD COLUMN _offset BIGINT;",
        "ALTER TABLE lake.events ADD COLUMN _timestamp TIMESTAMP;",
        "ALTER TABLE lake.events ALTER COLUMN id DROP NOT NULL;",
    ]


PLACE_COLUMNS = [
    ("_partition", pa.int32()),
    ("_offset", pa.int64()),
    ("_timestamp", pa.timestamp("us", "UTC")),
]
SHIP = {"type": "record", "name": "Ship", "fields": [{"name": "city", "type": "string"}, {"name": "zip", "type": "string"}]}  # fmt: skip


def opened_on(catalog: SqlCatalog, there: pa.DataType, source: Any) -> None:
    """Open a target whose source has a column `part` of this type of Avro, on a table that has another type."""
    catalog.create_namespace("lake")
    catalog.create_table("lake.events", pa.schema([("part", there), *PLACE_COLUMNS]))
    value = Avro({"type": "record", "name": "Event", "fields": [{"name": "part", "type": source}]})
    Iceberg(catalog, "lake.events").open(SinkSource("out", "events", False, String(), value))


@pytest.mark.parametrize(
    ("there", "source", "path"),
    [
        (pa.struct([("city", pa.string())]), SHIP, "part.zip"),
        (pa.struct([("city", pa.string()), ("postcode", pa.string())]), ["null", SHIP], "part.zip"),
        (pa.list_(pa.struct([("city", pa.string())])), {"type": "array", "items": SHIP}, "part.element.zip"),
        (
            pa.map_(pa.string(), pa.struct([("city", pa.string())])),
            {"type": "map", "values": SHIP},
            "part.value.zip",
        ),
    ],
    ids=["struct", "renamed", "list", "map"],
)
def test_a_field_inside_of_a_column_that_the_table_lacks_is_refused_at_the_start_with_the_statement_that_adds_it(
    there: pa.DataType, source: Any, path: str, catalogs: MakeCatalog
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        opened_on(catalogs(), there, source)
    assert refused.value.message.splitlines()[1:] == [f"ALTER TABLE lake.events ADD COLUMN {path} STRING;"]


def logical(kind: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


@pytest.mark.parametrize(
    ("there", "source", "message"),
    [
        (pa.float32(), "double", "part is float, and the values are double"),
        (pa.date32(), logical("long", "timestamp-micros"), r"part is date32\[day\], and the values are timestamp"),
        (pa.timestamp("us", "UTC"), logical("long", "local-timestamp-micros"), "part is timestamp"),
        (pa.float64(), logical("bytes", "decimal", precision=22, scale=2), "part is double"),
        (pa.int64(), "string", "part is int64, and the values are string"),
        (pa.string(), "bytes", "part is large_string, and the values are binary"),
        (pa.list_(pa.int64()), {"type": "array", "items": "string"}, "part.element is int64"),
    ],
)  # fmt: skip
def test_a_type_of_the_table_that_changes_values_is_refused_at_the_start(
    there: pa.DataType, source: Any, message: str, catalogs: MakeCatalog
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        opened_on(catalogs(), there, source)


@pytest.mark.parametrize(
    ("there", "source"),
    [
        (pa.int32(), "long"),
        (pa.float64(), "float"),
        (pa.float64(), "long"),
        (pa.int64(), "double"),
        (pa.timestamp("us"), logical("long", "timestamp-millis")),
        (pa.decimal128(9, 2), logical("bytes", "decimal", precision=22, scale=3)),
        (pa.binary(3), "bytes"),
    ],
)
def test_a_type_of_the_table_that_keeps_a_value_or_refuses_it_is_taken(
    there: pa.DataType, source: Any, catalogs: MakeCatalog
) -> None:
    opened_on(catalogs(), there, source)


def test_values_that_do_not_fit_the_type_or_may_not_be_null_are_dead_letters(
    catalogs: MakeCatalog, tester: Tester
) -> None:
    catalog = catalogs()
    catalog.create_namespace("lake")
    number = pa.field("number", pa.int32(), nullable=False)
    catalog.create_table("lake.events", pa.schema([number, *PLACE_COLUMNS]))
    make = lambda _, value: {"number": value or None}  # noqa: E731 - short
    target = Iceberg(catalog, "lake.events", columns=make, schema=pa.schema([("number", pa.int64())]))
    out = Sink("out", EVENTS, target)
    tester.create(EVENTS, partitions=1)
    tester.emit_many(EVENTS, [("a", 1), ("a", 1 << 40), ("a", 2), ("a", 0), ("a", 3)])
    tester.run(out)
    tester.advance(2)
    assert read(catalogs())["number"].to_pylist() == [1, 2, 3]
    letters = tester.dead_letters(out)
    assert [letter.origin.offset for letter in letters] == [1, 3]
    assert "may not be null" in letters[1].reason


def test_times_in_milliseconds_are_the_same_times_in_a_table_of_microseconds(
    catalogs: MakeCatalog, tester: Tester
) -> None:
    schema = pa.schema([("at", pa.timestamp("ms", "UTC"))])
    target = Iceberg(
        catalogs(), "lake.events", columns=lambda _, value: {"at": value}, schema=schema, create=True
    )
    tester.run(Sink("out", EVENTS, target, max_wait=0.0), partitions=1)
    tester.emit(EVENTS, "a", 1_700_000_000_123, timestamp_ms=1_700_000_000_456)
    tester.advance(2)
    rows = read(catalogs())
    assert rows["at"].type == pa.timestamp("us", "UTC")
    (row,) = rows.to_pylist()
    assert row["at"].timestamp() == 1_700_000_000.123
    assert row["_timestamp"].timestamp() == 1_700_000_000.456


def test_a_table_is_created_with_microseconds_for_nanoseconds_and_smaller_parts_are_dead_letters(
    catalogs: MakeCatalog, tester: Tester
) -> None:
    schema = pa.schema([("at", pa.timestamp("ns", "UTC"))])
    make = lambda _, value: {"at": value}  # noqa: E731 - short
    target = Iceberg(catalogs(), "lake.events", columns=make, schema=schema, create=True)
    out = Sink("out", EVENTS, target, max_wait=0.0)
    tester.run(out, partitions=1)
    tester.emit_many(EVENTS, [("a", 1_700_000_000_123_000), ("a", 1 << 62)])
    tester.advance(2)
    rows = read(catalogs())
    assert rows["at"].type == pa.timestamp("us", "UTC")
    assert rows["at"].cast(pa.int64()).to_pylist() == [1_700_000_000_123]
    assert [letter.origin.offset for letter in tester.dead_letters(out)] == [1]


def test_a_table_that_is_missing_and_a_store_that_is_away_are_told_apart(catalogs: MakeCatalog) -> None:
    source = SinkSource("out", "events", False, String(), Long())
    with pytest.raises(ConfigurationError, match="NoSuchTable"):
        Iceberg(catalogs(), "lake.nothing").open(source)
    away = SqlCatalog("lake", uri="sqlite:////nowhere/catalog.db", init_catalog_tables="false")
    with pytest.raises(RetryLater, match="unable to open"):
        Iceberg(away, "lake.events").open(source)


# A catalog of pyiceberg that cannot be made, as another member creates its tables, leaves its connection to the collector.
@pytest.mark.filterwarnings("ignore:<psycopg.Connection object:ResourceWarning")
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_members_that_start_at_once_in_an_empty_catalog_all_find_their_table(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """pyiceberg's `create_namespace_if_not_exists`, and its creation of the catalog's own tables, are no locks."""
    uri = f"sqlite:///{tmp_path}/catalog.db"
    if kind == "postgresql":
        uri = request.getfixturevalue("database").replace("postgresql://", "postgresql+psycopg://")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", uri)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/lake")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # pyiceberg has read it at its import
    for number in range(5):
        start_at_once(partial(Iceberg, "lake", f"lake{number}.events", create=True))
    with closing(load_catalog("lake")) as catalog:
        for number in range(5):
            rows = catalog.load_table(f"lake{number}.events").scan().to_arrow()
            assert sorted(rows["value"].to_pylist()) == list(range(MEMBERS))
    gc.collect()
