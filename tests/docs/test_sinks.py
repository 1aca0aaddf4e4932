"""The pages on sinks: their programs write what they say, and the target of the page passes the conformance suite."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from localkafka.errors import SetupError
from localstores.postgres import PostgresServer, find_program
from streamtable import Long, Stream
from streamtable.flow import Windowed
from streamtable_testing import Tester

DOCS = Path(__file__).parents[2] / "docs"


def programs(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    try:
        find_program("initdb")
    except SetupError as error:
        pytest.skip(str(error))
    with tempfile.TemporaryDirectory() as folder, PostgresServer(Path(folder)) as server:
        yield server.url


def test_the_sinks_of_the_page_write_each_row_and_each_event(tester: Tester, url: str) -> None:
    page: dict[str, Any] = {}
    exec(programs("how-to/write-to-postgres.md")[0], page)
    sinks = page["sinks"](url)
    tester.run(page["REVENUE"], *sinks)
    tester.emit_many(page["ORDERS"], [("harbour", {"shop": "harbour", "cents": n}) for n in (5, 2)])
    tester.advance(3)
    with psycopg.connect(url) as session:
        assert session.execute("SELECT shop, orders, cents FROM revenue").fetchall() == [("harbour", 2, 7)]
        assert session.execute("SELECT shop, cents FROM orders").fetchall() == [
            ("harbour", 5),
            ("harbour", 2),
        ]
    for sink in sinks:
        sink.target.close()


def test_the_windows_of_the_page_have_a_column_for_the_hour(tester: Tester, url: str) -> None:
    page: dict[str, Any] = {}
    exec(programs("how-to/write-to-postgres.md")[1], page)
    hours: Stream[Any, int] = Stream("closed-hours", page["HOURS"].key, Long())
    sink = page["hours_out"](url)
    tester.create(hours)
    tester.run(sink)
    tester.emit(hours, Windowed("nut", 7_200_000, 10_800_000), 4)
    tester.advance(3)
    with psycopg.connect(url) as session:
        found = session.execute("SELECT item, hour AT TIME ZONE 'UTC', count FROM hours").fetchall()
    assert [(item, str(hour), count) for item, hour, count in found] == [("nut", "1970-01-01 02:00:00", 4)]
    sink.target.close()


def test_the_target_of_the_page_has_eighty_lines_and_passes_the_conformance_suite(tmp_path: Path) -> None:
    target, suite = programs("how-to/write-your-own-target.md")
    code = [line for line in target.splitlines() if line.strip()]
    assert len(code) <= 80
    program = tmp_path / "test_sqlite.py"
    program.write_text(target + suite.replace("import pytest", "import pytest  # noqa"))
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis", "-p", "no:cacheprovider", str(program)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    assert " passed" in ran.stdout


def test_the_files_of_the_page_have_each_order_once_and_duckdb_reads_them(
    tester: Tester, tmp_path: Path
) -> None:
    page: dict[str, Any] = {}
    write, read = programs("how-to/write-to-parquet.md")
    exec(write, page)
    tester.run(page["orders_out"](tmp_path), partitions=1)
    tester.emit_many(page["ORDERS"], [("a", {"shop": "harbour", "cents": cents}) for cents in (5, 2)])
    tester.advance(61)
    exec(read, page)
    assert page["revenue"](tmp_path) == [("harbour", 7)]


def test_the_table_of_the_page_on_iceberg_has_each_order_once(tester: Tester, tmp_path: Path) -> None:
    page: dict[str, Any] = {}
    for program in programs("how-to/write-to-iceberg.md"):
        exec(program, page)
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    tester.run(page["orders_out"](catalog), partitions=1)
    tester.emit_many(page["ORDERS"], [("a", {"shop": "harbour", "cents": cents}) for cents in (5, 2)])
    tester.advance(61)
    assert page["revenue"](catalog) == {"harbour": 7}
    catalog.close()


def test_the_sink_of_the_page_on_elasticsearch_is_a_group_of_its_own() -> None:
    page: dict[str, Any] = {}
    (program,) = programs("how-to/write-to-elasticsearch.md")
    exec(program, page)
    sink = page["stock_out"]("http://127.0.0.1:9200")
    assert (sink.name, sink.input_topics) == ("stock-out", ("stock", "stock-out-retry"))
    sink.target.close()
