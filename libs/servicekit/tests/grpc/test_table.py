from collections.abc import Iterable
from dataclasses import dataclass

import grpc
import pytest

from servicekit.grpc.errors import CallRefused
from servicekit.grpc.table import FoundRows, GrpcTable, KeyRules
from servicekit.streams import Streams, TooManyStreams
from servicekit_testing import MemoryTable
from streamtable.errors import NotReady, UnreadableRow


@dataclass(frozen=True)
class Scan:
    prefix: str = ""
    start_after: str = ""
    limit: int = 0


@pytest.fixture
def rows() -> MemoryTable[int]:
    return MemoryTable()


@pytest.fixture
def table(rows: MemoryTable[int]) -> GrpcTable[int]:
    return GrpcTable(rows, Streams(limit=1), missing="no such user")


def found_in(table: GrpcTable[int], keys: Iterable[str]) -> FoundRows[int]:
    """Run all slices of the call."""
    slices = table.get_many(keys)
    while True:
        try:
            next(slices)
        except StopIteration as end:
            found: FoundRows[int] = end.value
            return found


def test_get_returns_the_row_of_a_user(rows: MemoryTable[int], table: GrpcTable[int]) -> None:
    rows.put("alice", 3)
    answer, row = table.get("alice")
    assert (row, answer.value, answer.offset) == (3, 3, 1)


def test_a_falsy_row_is_still_a_row(rows: MemoryTable[int], table: GrpcTable[int]) -> None:
    rows.put("alice", 0)
    assert table.get("alice")[1] == 0
    assert [row for _, _, row in found_in(table, ["alice"]).rows] == [0]


def test_a_missing_user_is_not_found_with_the_text_of_the_service(table: GrpcTable[int]) -> None:
    with pytest.raises(CallRefused, match="no such user") as caught:
        table.get("alice")
    assert caught.value.code is grpc.StatusCode.NOT_FOUND


def test_an_invalid_field_is_named(table: GrpcTable[int]) -> None:
    for action, field in (
        (lambda: table.get("a/b"), "user_id"),
        (lambda: found_in(table, ["alice", "a/b"]), "user_ids[1]"),
        (lambda: found_in(table, ["alice"] * 1001), "user_ids"),
        (lambda: list(table.scan(Scan(prefix="\x00"))), "prefix"),
        (lambda: list(table.scan(Scan(limit=-1))), "limit"),
    ):
        with pytest.raises(CallRefused) as caught:
            action()
        assert caught.value.fields[0][0] == field


def test_a_scan_returns_pages_up_to_its_limit(rows: MemoryTable[int], table: GrpcTable[int]) -> None:
    rows.rows = {f"user-{n:04}": n for n in range(1234)}
    assert [len(page.rows) for page in table.scan(Scan(limit=1100))] == [500, 500, 100]
    (page,) = table.scan(Scan(start_after="user-1231"))
    assert page.rows == [("user-1232", 1232), ("user-1233", 1233)]


def test_a_scan_takes_a_stream_slot(rows: MemoryTable[int], table: GrpcTable[int]) -> None:
    rows.rows = {f"user-{n:04}": n for n in range(1234)}
    pages = table.scan(Scan())
    next(pages)
    with pytest.raises(TooManyStreams):
        next(table.scan(Scan()))
    pages.close()  # type: ignore[attr-defined] # it is a generator
    assert next(table.scan(Scan())).rows


def test_nothing_is_answered_until_the_table_is_ready(rows: MemoryTable[int], table: GrpcTable[int]) -> None:
    rows.ready = False
    for action in (
        lambda: table.get("alice"),
        lambda: found_in(table, []),
        lambda: list(table.scan(Scan())),
    ):
        with pytest.raises(NotReady):
            action()


def no_zero(text: str) -> str:
    if "0" in text:
        raise ValueError("must not contain 0")
    return text


@pytest.mark.parametrize("texts", [["a", "b", "x0"], ["x0"]])
def test_rows_may_have_keys_other_than_user_ids(rows: MemoryTable[int], texts: list[str]) -> None:
    table = GrpcTable(rows, Streams(limit=1), missing="no such URL", keys=KeyRules("url", no_zero, no_zero))
    rows.put("a/b", 3)
    assert table.get("a/b")[1] == 3
    with pytest.raises(CallRefused) as refused:
        found_in(table, texts)
    assert refused.value.fields == ((f"urls[{len(texts) - 1}]", "must not contain 0"),)
    with pytest.raises(CallRefused):
        list(table.scan(Scan(prefix="0")))


def test_an_unreadable_row_is_an_error_in_get_and_counted_in_lists(
    rows: MemoryTable[int], table: GrpcTable[int]
) -> None:
    rows.rows = {f"user-{n:04}": n for n in range(600)}
    for spoiled in ("user-0003", "user-0499", "user-0500", "user-0599"):
        rows.spoil(spoiled)
    with pytest.raises(UnreadableRow):
        table.get("user-0003")
    found = found_in(table, ["user-0002", "user-0003", "unknown"])
    assert [(user, row) for user, _, row in found.rows] == [("user-0002", 2)]
    assert found.unreadable == ["user-0003"]
    assert [(len(page.rows), page.unreadable) for page in table.scan(Scan())] == [(500, 3), (96, 1)]


def test_successive_pages_count_each_unreadable_row_once(
    rows: MemoryTable[int], table: GrpcTable[int]
) -> None:
    rows.rows = dict.fromkeys("abcdefgh", 1)
    for spoiled in "acdh":
        rows.spoil(spoiled)
    pages, after = [], ""
    for _ in range(4):
        (page,) = table.scan(Scan(start_after=after, limit=1))
        pages.append((page.rows[0][0], page.unreadable))
        after = page.rows[0][0]
    assert pages == [("b", 1), ("e", 2), ("f", 0), ("g", 1)]
