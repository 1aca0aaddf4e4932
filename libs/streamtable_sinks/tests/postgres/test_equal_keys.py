"""Keys that PostgreSQL takes for equal or for null, though they differ or are values in the program."""

from collections.abc import Sequence
from typing import Any

import pytest
from libs.streamtable_sinks.tests.postgres.test_postgres import rows, run

from streamtable import Json, Stream, String, Table
from streamtable_sinks import Sink
from streamtable_sinks.postgres import Postgres
from streamtable_testing import Tester

WORDS: Table[str, Any] = Table("words", String(), Json())
RECORDS: Stream[str, Any] = Stream("words", String(), Json())
WITHOUT_CASE = "CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"


def play(tester: Tester, target: Postgres, changes: Sequence[tuple[str, Any]]) -> list[str]:
    """Write changes as one batch. Returns the reasons of the dead letters."""
    tester.create(RECORDS, partitions=1)
    out = Sink("out", WORDS, target, max_wait=0.0)
    tester.emit_many(RECORDS, list(changes))
    tester.run(out)
    tester.advance(2)
    return [letter.reason for letter in tester.dead_letters(out)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([("Ann", {"n": 1}), ("ann", {"n": 2}), ("Bob", {"n": 3}), ("ANN", {"n": 4})], [4, 3]),
        ([("Ann", None), ("ann", {"n": 2}), ("Bob", {"n": 3})], [2, 3]),
        ([("Bob", {"n": 3}), ("Ann", {"n": 1}), ("ann", None)], [3]),
        ([("ann", {"n": 1}), ("Ann", None), ("ANN", {"n": 2}), ("aNN", None), ("annA", {"n": 5})], [5]),
    ],
)
def test_of_keys_that_are_equal_in_the_database_the_last_change_counts(
    tester: Tester,
    database: str,
    postgres: type[Postgres],
    changes: Sequence[tuple[str, Any]],
    expected: Sequence[int],
) -> None:
    run(database, WITHOUT_CASE)
    run(database, "CREATE TABLE words (word text COLLATE nocase PRIMARY KEY, n bigint)")
    assert play(tester, postgres(database, "words", key=("word",)), changes) == []
    assert [n for (n,) in rows(database, "SELECT n FROM words ORDER BY word")] == expected


ANY_KEYS: Stream[Any, Any] = Stream("any", Json(), Json())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([(1, {"n": 1}), (True, {"n": 2}), (1.0, {"n": 3})], [("1", 1), ("1.0", 3), ("t", 2)]),
        ([(1, {"n": 1}), (True, None)], [("1", 1)]),
    ],
    ids=["written", "deleted"],
)
def test_keys_of_several_types_that_are_equal_in_python_are_rows_of_their_own(
    changes: Sequence[tuple[Any, Any]],
    expected: Sequence[Any],
    tester: Tester,
    database: str,
    postgres: type[Postgres],
) -> None:
    run(database, "CREATE TABLE words (word text PRIMARY KEY, n bigint)")
    tester.create(ANY_KEYS, partitions=1)
    table = Table(ANY_KEYS.name, ANY_KEYS.key, ANY_KEYS.value)
    tester.emit_many(ANY_KEYS, list(changes))
    tester.run(Sink("out", table, postgres(database, "words", key=("word",)), max_wait=0.0))
    tester.advance(2)
    assert rows(database, "SELECT word, n FROM words ORDER BY word") == expected


def test_numbers_that_the_key_column_rounds_to_one_are_one_row(
    tester: Tester, database: str, postgres: type[Postgres]
) -> None:
    run(database, "CREATE TABLE words (word numeric(9, 2) PRIMARY KEY, n bigint)")
    assert play(
        tester,
        postgres(database, "words", key={"word": float}),
        [("1.001", {"n": 1}), ("2", {"n": 2}), ("1.002", {"n": 3})],
    ) == []  # fmt: skip
    assert rows(database, "SELECT word::text, n FROM words ORDER BY n") == [("2.00", 2), ("1.00", 3)]


def test_a_row_without_a_part_of_its_key_is_a_dead_letter_and_no_second_row(
    tester: Tester, database: str, postgres: type[Postgres]
) -> None:
    """Nulls are not equal in PostgreSQL: such a row would be inserted by each change, and deleted by none."""
    run(database, "CREATE TABLE words (shop text, word text, n bigint, UNIQUE (shop, word))")
    parts = {"shop": lambda key: key.partition("/")[0] or None, "word": lambda key: key.partition("/")[2]}
    changes = [("a/x", {"n": 1}), ("/x", {"n": 2}), ("b/y", {"n": 3}), ("/z", None)]
    reasons = play(tester, postgres(database, "words", key=parts), changes)
    assert ["a column of its key is null" in each for each in reasons] == [True, True]
    assert rows(database, "SELECT shop, word, n FROM words ORDER BY n") == [("a", "x", 1), ("b", "y", 3)]


def test_a_row_with_another_column_in_the_place_of_its_key_loses_nothing_without_a_word(
    tester: Tester, database: str, postgres: type[Postgres]
) -> None:
    run(database, "CREATE TABLE words (word text PRIMARY KEY, n bigint, m bigint)")
    changes = [("a", {"word": "a", "n": 1}), ("b", {"n": 2, "m": 3}), ("c", {"word": "c", "n": 4})]
    (reason,) = play(tester, postgres(database, "words", key=("word",)), changes)
    assert "word" in reason
    assert rows(database, "SELECT word, n, m FROM words ORDER BY n") == [("a", 1, None), ("c", 4, None)]
