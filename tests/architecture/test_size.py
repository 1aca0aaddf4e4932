"""The sizes that keep the code readable. Lines of code: neither blank, nor comment, nor docstring."""

import ast
import io
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE_LINES_MAX = {
    "libs/streamtable": 15_800,  # aim 7,000: exactly once, recovery, faults, ids as arrays, the seam for other tasks, state tables and what falls due in them, timers, event time, what flows stand on, whose hosts a server is, queries of the rows at work, tails of streams; watches bounded by bytes; rows that take the place of others, and ranges of many keys read and decoded at once; waits until brokers know created topics; rows that are appended, and read back as bytes; a name for refused passwords and certificates; records that are not in the partition of their key; partitions that the client has stopped; clients that keep the leader epochs of a former topic; records for a partition that is given; tables that the program has left; index entries that share a row; clients for coordinators, destroyed after a time-out; rows that are read and decoded together; a warning for a view whose topic loses rows; request timeouts that fit into a transaction; partitions of topics between groups; codecs that are none
    "libs/streamtable_admin": 1_965,  # aim 1,500: one layout for two faces, and what open transactions and inputs hold back; letters that cannot be sent again; declarations of groups
    "libs/streamtable_cli": 3_896,  # aim 3,500: reset, compare and skip are operations that only the command line has; flows stand for their groups, and letters that hold timers are named, as are the options of a wrong number
    "libs/microbatch": 3_380,  # aim 3,000
    "libs/servicekit": 6_623,  # aim 3,800: the declared service of a table has moved here; hosts, origins, scopes, audit and windows too; gRPC's connections and streams are shared among peers, as grpcio cannot; calls for windows, a status for each group of a flow, and events of closed windows that a client can resume; an event is encoded once for all who watch its row; waits that lose no signal; gRPC that views alone import; deadlines that are over at the caller first; a read buffer with a limit; requests that are sent ahead, and bodies of tiny chunks
    "spark": 4_413,  # aim 3,200: any topic and any group, plain Parquet and object stores, audits and reports that the console shows; topics and types that no longer fit a lake
    "services/click_count": 340,  # aim 300: the texts of its eight routes, two of them about closed windows
    "services/user_status": 430,  # aim 380: its join and its loop are written out
}
"""Lines of code of a package at most, beside what it should come to. Lower a number whenever the package shrinks."""
MODULE_LINES_MAX = 500  # all lines
FLOW = ROOT / "libs/streamtable/src/streamtable/flow"
"""A layer on the core with a ceiling of its own, and not counted with the core."""
FLOW_LINES_MAX = 4_033  # aim 3,000: five kinds of joins and cogroup are 1,680, of which waiting records that stay bytes, the latest of them in memory, as dicts and as arrays, halve what a join costs; sliding windows and emission at intervals 350; topics that are partitioned as what they are joined with; answers that go to the partition that has asked; times that Kafka cannot carry; arguments that no step can use
FLOW_MODULE_LINES_MAX = 400  # all lines; the streams, whose methods are many and short
MADE_BY_PROGRAMS = ("contracts/grpc", "contracts/records.py")
SKIPPED_TOKENS = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
SOURCES = sorted(
    path
    for room in ("libs", "services", "infra", "spark")
    for path in (ROOT / room).rglob("*.py")
    if "tests" not in path.parts and not any(made in path.as_posix() for made in MADE_BY_PROGRAMS)
)


def lines_of_code(path: Path) -> int:
    source = path.read_text(encoding="utf-8")
    prose = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    code = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in SKIPPED_TOKENS
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(code - prose)


def test_lines_of_code_are_neither_blank_nor_comment_nor_docstring(tmp_path: Path) -> None:
    sample = tmp_path / "sample.py"
    sample.write_text(
        '"""Prose\nin two lines."""\n\n# why\nx = (\n    1\n)  # here\n\n\ndef f():\n    """Says."""\n'
    )
    assert lines_of_code(sample) == 4


@pytest.mark.parametrize(("package", "most"), PACKAGE_LINES_MAX.items())
def test_a_package_stays_small_enough_to_be_read(package: str, most: int) -> None:
    paths = [
        path for path in SOURCES if (ROOT / package / "src") in path.parents and FLOW not in path.parents
    ]
    sizes = list(map(lines_of_code, paths))
    assert 0 < sum(sizes) <= most, sum(sizes)


def test_flows_stay_small_enough_to_be_read() -> None:
    paths = [path for path in SOURCES if FLOW in path.parents]
    assert 0 < sum(map(lines_of_code, paths)) <= FLOW_LINES_MAX
    longest = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    assert max(longest.values()) <= FLOW_MODULE_LINES_MAX, longest


def test_a_module_is_at_most_so_long() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in SOURCES
    }
    assert {name: length for name, length in lengths.items() if length > MODULE_LINES_MAX} == {}
