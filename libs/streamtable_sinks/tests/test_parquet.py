"""Parquet files as a target, on a disk and in S3: they pass the conformance suite, and DuckDB reads each record once."""

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from libs.streamtable_sinks.tests.starts import MEMBERS, start_at_once
from obstore.store import S3Store

from localkafka.process import Child, reserve_port
from localkafka.waiting import wait_until
from streamtable import Avro, Json, Long, Stream, String
from streamtable.errors import ConfigurationError
from streamtable_sinks import Sink, SinkChange, SinkPartition, SinkSource, SinkTarget
from streamtable_sinks.parquet import Parquet, committed_files, compact, read_rows
from streamtable_sinks.parquet.commits import CommitEntry, CommitLog
from streamtable_sinks.testing import VALUE, TargetSuite, changed
from streamtable_testing import Tester

EVENTS = Stream("events", String(), Long())
SCHEMA = pa.schema([("key", pa.string()), ("number", pa.int64()), ("text", pa.string())])


def made(where: Path | S3Store) -> Parquet:
    return Parquet(where, columns=lambda key, value: {"key": key, **value}, schema=SCHEMA)


def numbers(where: Path | S3Store) -> list[tuple[str, int]]:
    return [(row["key"], row["number"]) for row in read_rows(where).to_pylist()]


class TestOnDisk(TargetSuite):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def client(self) -> SinkTarget:
        return made(self.folder)

    def numbers(self) -> Sequence[tuple[str, int]]:
        return numbers(self.folder)

    def bad(self) -> SinkChange:
        return SinkChange("b", {"number": 1 << 70, "text": None}, 1, 0)


@pytest.mark.parametrize("step", ["rows-written", "begun", "offsets-sent", "committed", "ledger-written"])
def test_a_crash_at_any_step_leaves_each_record_once_in_the_committed_files(
    step: str, tmp_path: Path
) -> None:
    with Tester() as tester:
        out = Sink("out", EVENTS, Parquet(tmp_path), max_wait=0.0)
        tester.crash(out, step)
        tester.run(out, partitions=1)
        for number in range(4):
            tester.emit_many(EVENTS, [("a", 2 * number), ("a", 2 * number + 1)])
            tester.start(out)
        tester.advance(2)
        files = [str(tmp_path / each) for each in committed_files(tmp_path)]
        found = duckdb.read_parquet(files).order("_offset").project("value, _partition").fetchall()
        assert found == [(value, 0) for value in range(8)]


def test_a_file_that_was_never_committed_is_not_read(tester: Tester, tmp_path: Path) -> None:
    target = Parquet(tmp_path)
    tester.run(Sink("out", EVENTS, target, max_wait=0.0), partitions=1)
    tester.emit(EVENTS, "a", 1)
    tester.advance(2)
    (place,) = (each for each in target._last if each.topic == "events")
    target._write_file(place, [SinkChange("a", 9, 1, 0)])  # and then the process died
    assert len(list(tmp_path.glob("events-00000/*.parquet"))) == 2
    assert read_rows(tmp_path)["value"].to_pylist() == [1]


def test_a_value_that_does_not_fit_is_a_dead_letter(tester: Tester, tmp_path: Path) -> None:
    schema = pa.schema([("half", pa.int64())])
    target = Parquet(tmp_path, columns=lambda _, value: {"half": 10 // value}, schema=schema)
    out = Sink("out", EVENTS, target)
    tester.create(EVENTS, partitions=1)
    tester.emit_many(EVENTS, [("a", 1), ("a", 0), ("a", 5)])
    tester.run(out)
    tester.advance(2)
    assert read_rows(tmp_path)["half"].to_pylist() == [10, 2]
    assert "ZeroDivisionError" in tester.dead_letters(out)[0].reason


def test_a_column_that_the_schema_lacks_is_a_dead_letter_and_not_dropped(
    tester: Tester, tmp_path: Path
) -> None:
    target = Parquet(
        tmp_path,
        columns=lambda _, value: {"number": value, **({"extra": 1} if value == 2 else {})},
        schema=pa.schema([("number", pa.int64())]),
    )
    out = Sink("out", EVENTS, target)
    tester.create(EVENTS, partitions=1)
    tester.emit_many(EVENTS, [("a", 1), ("a", 2), ("a", 3)])
    tester.run(out)
    tester.advance(2)
    assert read_rows(tmp_path)["number"].to_pylist() == [1, 3]
    assert "no columns ['extra']" in tester.dead_letters(out)[0].reason


@pytest.mark.parametrize(
    ("name", "is_table", "refused"),
    [
        ("_offset", False, True),
        ("_timestamp", True, True),
        ("_deleted", True, True),
        ("_deleted", False, False),
    ],
)
def test_a_field_with_the_name_of_a_column_of_the_sink_is_refused_at_the_start(
    name: str,
    is_table: bool,  # noqa: FBT001 - a parameter
    refused: bool,  # noqa: FBT001 - a parameter
    tmp_path: Path,
) -> None:
    """A file with two columns of one name can be read by nothing, and neither can the folder with it."""
    value = Avro({"type": "record", "name": "Event", "fields": [{"name": name, "type": "long"}]})
    source = SinkSource("out", "events", is_table, String(), value)
    target = Parquet(tmp_path, key=("id",) if is_table else ())
    if refused:
        with pytest.raises(ConfigurationError, match=f"{name}.*columns="):
            target.open(source)
    else:
        target.open(source)


EAST = timezone(timedelta(hours=5))
NAMED = pa.struct([("a", pa.int64())])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), 1.5),
        (pa.int64(), -0.9),
        (pa.int64(), Decimal("1.5")),
        (pa.float32(), 1e300),
        (pa.date32(), datetime(2026, 1, 1, 23, 59, tzinfo=EAST)),
        (NAMED, {"a": 1, "b": 2}),
        (pa.list_(NAMED), [{"b": 2}]),
        (pa.map_(pa.string(), pa.int32()), {"a": 0.5}),
        (pa.timestamp("us", "UTC"), datetime(2026, 1, 1, 12)),  # noqa: DTZ001 - that is the question
        (pa.timestamp("us"), datetime(2026, 1, 1, 12, tzinfo=EAST)),
        (pa.timestamp("us"), 1.5),
        (pa.timestamp("ms", "UTC"), datetime(2026, 1, 1, 0, 0, 0, 1999, tzinfo=UTC)),
        (pa.time32("ms"), time(0, 0, 0, 1999)),
        (pa.time64("us"), time(1, tzinfo=EAST)),
        (pa.duration("ms"), timedelta(microseconds=1999)),
        (pa.timestamp("ns"), datetime(2026, 1, 1, 12, tzinfo=EAST)),
        (pa.timestamp("ns", "UTC"), datetime(2026, 1, 1, 12)),  # noqa: DTZ001 - that is the question
        (pa.list_(pa.timestamp("ns", "UTC"), 2), [1_001, datetime(2026, 1, 1, 12)]),  # noqa: DTZ001 - the same
        (
            pa.struct([("at", pa.timestamp("ns")), ("day", pa.date32())]),
            {"day": datetime(2026, 1, 1, 5, tzinfo=UTC)},
        ),
    ],
    ids=str,
)
def test_a_value_that_the_type_of_its_column_would_change_is_a_dead_letter(
    kind: pa.DataType, value: Any, tester: Tester, tmp_path: Path
) -> None:
    make = lambda _, number: {"n": value if number == 1 else None}  # noqa: E731 - short
    out = Sink("out", EVENTS, Parquet(tmp_path, columns=make, schema=pa.schema([("n", kind)])))
    tester.create(EVENTS, partitions=1)
    tester.emit_many(EVENTS, [("a", 0), ("a", 1), ("a", 2)])
    tester.run(out)
    tester.advance(2)
    assert read_rows(tmp_path)["n"].to_pylist() == [None, None]
    (letter,) = tester.dead_letters(out)
    assert letter.origin.offset == 1
    assert "the column 'n' would change" in letter.reason


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        (pa.int64(), 2.0, 2),
        (pa.int32(), np.int64(7), 7),
        (pa.float32(), 0.1, np.float32(0.1)),
        (pa.float64(), float("inf"), float("inf")),
        (pa.date32(), date(2026, 1, 1), date(2026, 1, 1)),
        (pa.struct([("a", pa.int64()), ("b", pa.int64())]), {"a": 1}, {"a": 1, "b": None}),
        (pa.list_(pa.float64()), np.array([0.5, 1.5]), [0.5, 1.5]),
        (pa.map_(pa.string(), NAMED), {"x": {"a": 1}}, [("x", {"a": 1})]),
        (pa.timestamp("us", "UTC"), datetime(2026, 1, 1, tzinfo=EAST), datetime(2025, 12, 31, 19, tzinfo=UTC)),
        (pa.timestamp("ms", "UTC"), 1500, datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)),
        (pa.decimal128(9, 2), Decimal("1.5"), Decimal("1.50")),
        (pa.binary(), b"\xff", b"\xff"),
    ],
    ids=str,
)  # fmt: skip
def test_a_value_that_is_the_same_in_the_type_of_its_column_is_written(
    kind: pa.DataType, value: Any, read: Any, tmp_path: Path
) -> None:
    target = Parquet(tmp_path, columns=lambda _, __: {"n": value}, schema=pa.schema([("n", kind)]))
    target.open(SinkSource("out", "events", False, String(), Long()))
    place = SinkPartition("out", "events", "id", 0)
    target.write(place, target.take(place, "me").epoch, None, 1, [SinkChange("a", 1, 0, 0)])
    assert read_rows(tmp_path)["n"].to_pylist() == [read]


def test_a_value_that_is_nested_too_deep_to_be_shown_is_a_dead_letter(tester: Tester, tmp_path: Path) -> None:
    deep: Any = []
    for _ in range(5_000):
        deep = [deep]
    make = lambda _, number: {"n": {"a": number, **({"b": deep} if number == 1 else {})}}  # noqa: E731 - short
    out = Sink("out", EVENTS, Parquet(tmp_path, columns=make, schema=pa.schema([("n", NAMED)])))
    tester.create(EVENTS, partitions=1)
    tester.emit_many(EVENTS, [("a", 0), ("a", 1), ("a", 2)])
    tester.run(out)
    tester.advance(2)
    assert read_rows(tmp_path)["n"].to_pylist() == [{"a": 0}, {"a": 2}]
    assert [letter.origin.offset for letter in tester.dead_letters(out)] == [1]


@pytest.mark.parametrize("row", [None, [], 5, {5: 1, "x": 2}], ids=["none", "list", "number", "names"])
def test_a_row_that_names_no_columns_of_the_schema_is_a_dead_letter(
    row: Any, tester: Tester, tmp_path: Path
) -> None:
    make: Any = lambda _, number: row if number == 1 else {"n": number}  # noqa: E731 - short
    out = Sink("out", EVENTS, Parquet(tmp_path, columns=make, schema=pa.schema([("n", pa.int64())])))
    tester.create(EVENTS, partitions=1)
    tester.emit_many(EVENTS, [("a", 0), ("a", 1), ("a", 2)])
    tester.run(out)
    tester.advance(2)
    assert read_rows(tmp_path)["n"].to_pylist() == [0, 2]
    assert [letter.origin.offset for letter in tester.dead_letters(out)] == [1]


@pytest.mark.parametrize(
    "kind",
    [["null", "string", "bytes"], {"type": "array", "items": ["string", "bytes"]}],
    ids=["union", "array"],
)
def test_bytes_of_a_union_whose_column_is_a_text_are_a_dead_letter(
    kind: Any, tester: Tester, tmp_path: Path
) -> None:
    value = Avro({"type": "record", "name": "Event", "fields": [{"name": "part", "type": kind}]})
    events: Stream[str, Any] = Stream("events", String(), value)
    out = Sink("out", events, Parquet(tmp_path))
    tester.create(events, partitions=1)
    parts: list[Any] = ["abc", b"abc", "d"]
    if isinstance(kind, dict):
        parts = [[each] for each in parts]
    tester.emit_many(events, [("a", {"part": each}) for each in parts])
    tester.run(out)
    tester.advance(2)
    assert read_rows(tmp_path)["part"].to_pylist() == [parts[0], parts[2]]
    assert [letter.origin.offset for letter in tester.dead_letters(out)] == [1]


def test_a_decimal_of_more_digits_than_arrow_has_is_refused_at_the_start(tmp_path: Path) -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 80}
    value = Avro({"type": "record", "name": "Event", "fields": [{"name": "total", "type": kind}]})
    with pytest.raises(ConfigurationError, match=r"'total'.* 76.*columns="):
        Parquet(tmp_path).open(SinkSource("out", "events", False, String(), value))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((pa.decimal128(20, 2), Decimal("123456789012345678.91")), (pa.float64(), 0.5)),
        ((pa.list_(pa.decimal128(20, 2)), [Decimal("0.1")]), (pa.list_(pa.float64()), [0.5])),
        ((pa.int64(), 2**53 + 1), (pa.float64(), 0.5)),
        ((pa.string(), "a"), (pa.binary(), b"\xff")),
        ((pa.timestamp("us"), datetime(2026, 1, 1)), (pa.date32(), date(2026, 1, 1))),  # noqa: DTZ001 - in no zone
    ],
    ids=["decimals", "lists", "numbers", "texts", "times"],
)
def test_files_with_a_column_whose_types_have_none_in_common_that_keeps_all_values_are_not_read_as_one(
    one: tuple[pa.DataType, Any], other: tuple[pa.DataType, Any], tmp_path: Path
) -> None:
    for name, (kind, value) in (("a", one), ("b", other)):
        made = pa.schema([("n", kind)])
        target = Parquet(tmp_path, columns=lambda _, __, value=value: {"n": value}, schema=made)  # type: ignore[misc]
        target.open(SinkSource(name, "events", False, String(), Long()))
        place = SinkPartition(name, "events", "id", 0)
        target.write(place, target.take(place, "me").epoch, None, 1, [SinkChange("a", 1, 0, 0)])
    with pytest.raises(ConfigurationError, match="committed_files"):
        read_rows(tmp_path)
    assert read_rows(tmp_path, sink="a")["n"].to_pylist() == [one[1]]


def test_nanoseconds_are_written_as_the_numbers_that_they_are(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.timestamp("ns"))])
    target = Parquet(tmp_path, columns=lambda _, value: {"n": value}, schema=schema)
    target.open(SinkSource("out", "events", False, String(), Long()))
    place = SinkPartition("out", "events", "id", 0)
    target.write(place, target.take(place, "me").epoch, None, 1, [SinkChange("a", 1_001, 0, 0)])
    assert read_rows(tmp_path)["n"].cast(pa.int64()).to_pylist() == [1_001]


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of moto's S3 server, with a bucket."""
    with reserve_port() as port:
        number = port.getsockname()[1]
        log = tmp_path_factory.mktemp("moto") / "log"
        child = Child([sys.executable, "-m", "moto.server", "-p", str(number)], log)
        url = f"http://127.0.0.1:{number}"
        try:
            wait_until(lambda: made_bucket(f"{url}/lake"), 60, "the S3 server answers", every=0.1)
            yield url
        finally:
            child.kill()


def made_bucket(url: str) -> bool:
    try:
        with urlopen(Request(url, method="PUT"), timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.mark.server
class TestOnS3(TargetSuite):
    @pytest.fixture(autouse=True)
    def _store(self, s3: str, request: pytest.FixtureRequest) -> None:
        self.store = S3Store(
            "lake",
            prefix=request.node.name,
            endpoint=s3,
            region="us-east-1",
            access_key_id="any",
            secret_access_key="any",
            client_options={"allow_http": True},
        )

    def client(self) -> SinkTarget:
        return made(self.store)

    def numbers(self) -> Sequence[tuple[str, int]]:
        return numbers(self.store)

    def test_small_files_are_merged_in_the_store(self, place: SinkPartition) -> None:
        target = made(self.store)
        target.open(SinkSource("suite", "rows", False, String(), VALUE))
        epoch = target.take(place, "a").epoch
        target.write(place, epoch, None, 0, ())
        for at in range(3):
            target.write(place, epoch, at, at + 1, changed(("a", at), first=at))
        (done,) = compact(self.store, datetime.now(UTC))
        assert (done.merged, done.into) == (3, 1)
        assert numbers(self.store) == [("a", 0), ("a", 1), ("a", 2)]

    def test_only_one_process_creates_the_next_entry(self, place: SinkPartition) -> None:
        one, other = CommitLog(self.store, place), CommitLog(self.store, place)
        assert one.append(CommitEntry(number=1, epoch=1))
        assert not other.append(CommitEntry(number=1, epoch=9))
        last = other.last()
        assert last is not None
        assert last.epoch == 1


def test_members_that_start_at_once_create_the_folder_once(tmp_path: Path) -> None:
    for number in range(5):
        folder = tmp_path / str(number) / "events"
        start_at_once(partial(Parquet, folder))
        assert sorted(read_rows(folder)["value"].to_pylist()) == list(range(MEMBERS))


def test_rows_of_a_program_that_got_another_field_are_read_beside_those_of_before(tmp_path: Path) -> None:
    def write(sink: str, row: dict[str, Any], schema: pa.Schema) -> None:
        place = SinkPartition(sink, "events", "id", 0)
        target = Parquet(tmp_path, columns=lambda _, value: value, schema=schema)
        target.open(SinkSource(sink, "events", False, String(), VALUE))
        epoch = target.take(place, "a").epoch
        target.write(place, epoch, None, 0, ())
        target.write(place, epoch, 0, 1, [SinkChange("a", row, 0, 0)])

    write("a", {"number": 1}, pa.schema([("number", pa.int32())]))
    write("b", {"text": "new", "number": 1 << 40}, pa.schema([("text", pa.string()), ("number", pa.int64())]))
    assert read_rows(tmp_path).select(["number", "text"]).to_pylist() == [
        {"number": 1, "text": None},
        {"number": 1 << 40, "text": "new"},
    ]


def test_a_decimal_of_more_than_38_digits_has_them_all(tester: Tester, tmp_path: Path) -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 2}
    sums: Stream[str, Any] = Stream(
        "sums", String(), Avro({"type": "record", "name": "S", "fields": [{"name": "sum", "type": kind}]})
    )
    tester.run(Sink("out", sums, Parquet(tmp_path), max_wait=0.0), partitions=1)
    most = Decimal("9" * 58 + ".99")
    tester.emit(sums, "a", {"sum": most})
    tester.advance(2)
    assert read_rows(tmp_path)["sum"].to_pylist() == [most]


def test_two_sinks_at_the_same_time_need_a_target_each(tester: Tester, tmp_path: Path) -> None:
    """The second one would replace the columns of the first one, and whether its changes are a table's."""
    lake = Parquet(tmp_path)
    first, second = Sink("first", EVENTS, lake, max_wait=0.0), Sink("second", EVENTS, lake, max_wait=0.0)
    tester.run(first, partitions=1)
    with pytest.raises(ConfigurationError, match="written by sink 'first' in this process already"):
        tester.run(second)
    tester.stop(first)
    tester.start(first)
    tester.emit(EVENTS, "a", 1)
    assert len(read_rows(tmp_path, sink="first")) == 1
    tester.stop(first)
    tester.start(second)
    assert len(read_rows(tmp_path, sink="second")) == 1


def test_the_function_of_the_columns_is_asked_for_null_in_a_stream(tmp_path: Path) -> None:
    target = Parquet(tmp_path, columns=lambda key, value: {"key": key, "text": repr(value)}, schema=SCHEMA)
    target.open(SinkSource("out", "nulls", False, String(), Json()))
    place = SinkPartition("out", "nulls", "id", 0)
    target.write(place, target.take(place, "me").epoch, None, 1, [SinkChange("a", None, 0, 0)])
    assert [(row["key"], row["text"]) for row in read_rows(tmp_path).to_pylist()] == [("a", "None")]
