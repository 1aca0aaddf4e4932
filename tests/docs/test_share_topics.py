"""The page on shared topics: its graphs work on what other libraries write, and its Java and Go is what is tested."""

import re
from pathlib import Path
from typing import Any

import pytest

from streamtable import Long, Table
from streamtable.base.partitioner import partition_for
from streamtable.codec import Avro
from streamtable_testing import Tester

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs/how-to/share-topics.md").read_text("utf-8")
KAFKA_STREAMS, GOKA, SPARK_READS, SPARK_WRITES = re.findall(
    r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE
)
PROGRAMS = ROOT / "tests/interop/shared"
USERS = [f"user-{number}" for number in range(20)]


def names_of(snippet: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(snippet, names)
    return names


def fill(tester: Tester, table: Table[str, Any], rows: dict[str, bytes]) -> None:
    """Write rows as another library does, to the partitions that it chooses."""
    tester.kafka.create_topic(table.name, 4, compacted=True)
    for key, row in rows.items():
        partition = partition_for(key.encode(), 4, table.partitioner)
        tester.kafka.append(table.name, key.encode(), row, partition=partition)


def test_a_table_of_kafka_streams_is_joined_and_ours_holds_what_it_reads(tester: Tester) -> None:
    names = names_of(KAFKA_STREAMS)
    fill(tester, names["ORDERS_PER_USER"], {user: n.to_bytes(8, "big") for n, user in enumerate(USERS)})
    tester.run(names["VISIT_COUNT"], partitions=4)
    for user in USERS:
        tester.emit(names["VISITS"], user, "/index")
    greetings = {each.key: each.value for each in tester.records(names["GREETINGS"])}
    assert greetings == {user: f"visit 1 to /index, {n} orders so far" for n, user in enumerate(USERS)}
    for place, record in tester.kafka.records("visit-count-table"):
        assert record.value() == Long().encode(1)
        assert place.partition == partition_for(record.key() or b"", 4)


def test_a_table_of_goka_is_joined_and_ours_lies_where_goka_looks(tester: Tester) -> None:
    names = names_of(GOKA)
    fill(tester, names["SCORES"], {user: str(n).encode() for n, user in enumerate(USERS)})
    tester.run(names["LOGIN_COUNT"], partitions=4)
    for user in USERS:
        tester.emit(names["LOGINS"], user, "now")
    welcomes = tester.records(names["WELCOMES"])
    assert {each.key: each.value for each in welcomes} == {
        user: f"login 1, score {n}" for n, user in enumerate(USERS)
    }
    assert all(each.partition == partition_for(str(each.key).encode(), 4, "fnv1a") for each in welcomes)
    view = tester.view(names["LOGIN_COUNT"].table)
    assert {user: view.get(user) for user in USERS} == dict.fromkeys(USERS, 1)
    for place, record in tester.kafka.records("login-count-table"):
        assert record.value() == b"1"
        assert place.partition == partition_for(record.key() or b"", 4, "fnv1a")


def lines_of(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines())


@pytest.mark.parametrize(
    ("language", "program"),
    [("java", "kafka_streams/src/main/java/Shared.java"), ("go", "goka/main.go")],
)
def test_the_java_and_go_of_the_page_are_lines_of_programs_that_run(language: str, program: str) -> None:
    source = lines_of((PROGRAMS / program).read_text("utf-8"))
    snippets = re.findall(rf"^ *```{language}\n(.*?)^ *```", PAGE, re.DOTALL | re.MULTILINE)
    assert snippets
    for line in "".join(snippets).splitlines():
        assert line.strip() in source, line


@pytest.mark.parametrize("snippet", [SPARK_READS, SPARK_WRITES])
def test_what_the_page_says_to_spark_is_python(snippet: str) -> None:
    compile(snippet, "share-topics.md", "exec")


def test_as_many_bytes_as_the_page_says_stand_before_avro() -> None:
    named = Avro("long")
    assert named.encode(5)[10:] == b"\x0a"
    assert "after 10 bytes" in PAGE
    assert "substring(value, 11)" in PAGE
