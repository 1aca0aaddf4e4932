"""Rows whose columns the codec does not know: an odd one is a dead letter, wherever it comes, and the others are written."""

from collections.abc import Callable
from typing import Any

import pytest
from libs.streamtable_sinks.tests.postgres.test_postgres import rows, run

from streamtable import Json, Stream, String
from streamtable.errors import ConfigurationError
from streamtable_sinks import Sink
from streamtable_sinks.postgres import Postgres
from streamtable_testing import Tester

EVENTS: Stream[str, Any] = Stream("events", String(), Json())
TABLE = "CREATE TABLE events (serial bigserial, a bigint, b bigint, c bigint)"
WRITTEN = "SELECT a, b, c FROM events ORDER BY serial"


@pytest.fixture
def play(tester: Tester, database: str, postgres: type[Postgres]) -> Callable[..., list[int]]:
    """Writes values to a table `events`, in the batches in which they are given. Returns the offsets of the dead letters."""

    def written(*batches: list[Any], **options: Any) -> list[int]:
        out = Sink("out", EVENTS, postgres(database, "events", **options), max_wait=0.0)
        tester.run(out, partitions=1)
        for batch in batches:
            tester.emit_many(EVENTS, [(f"k{number}", value) for number, value in enumerate(batch)])
            tester.advance(5)
        return [letter.origin.offset for letter in tester.dead_letters(out)]

    return written


def test_a_first_row_that_lacks_a_column_does_not_decide_the_columns_of_the_others(
    play: Callable[..., list[int]], database: str
) -> None:
    run(database, TABLE)
    assert play([{"a": 1}, {"a": 2, "b": 3}, {"b": 5, "a": 4}]) == [0]
    assert rows(database, WRITTEN) == [(2, 3, None), (4, 5, None)]


def test_a_first_row_that_has_another_column_does_not_decide_the_columns_of_the_others(
    play: Callable[..., list[int]], database: str
) -> None:
    run(database, TABLE)
    assert play([{"a": 1, "c": 9}, {"a": 2, "b": 3}, {"a": 4, "b": 5}]) == [0]
    assert rows(database, WRITTEN) == [(2, 3, None), (4, 5, None)]


@pytest.mark.parametrize("odd", [{"a": 1, "b": 2, "z": 3}, {}, 7], ids=["more", "none", "no-object"])
def test_a_row_with_columns_that_the_table_lacks_is_a_dead_letter_also_as_the_first(
    odd: Any, play: Callable[..., list[int]], database: str
) -> None:
    run(database, TABLE)
    assert play([odd], [{"a": 2, "b": 3}], [odd, {"a": 4, "b": 5}, odd]) == [0, 2, 4]
    assert rows(database, WRITTEN) == [(2, 3, None), (4, 5, None)]


@pytest.mark.parametrize("key", [(), ("id",)], ids=["appended", "updated"])
def test_an_odd_row_that_comes_first_and_alone_does_not_decide_the_columns_of_later_ones(
    key: tuple[str, ...], play: Callable[..., list[int]], database: str
) -> None:
    run(database, TABLE.replace("serial bigserial", "serial bigserial, id text UNIQUE"))
    good = [[{"a": number, "b": number}] for number in range(1, 5)]
    assert play([{"a": 0}], *good[:3], [{"a": 9}], good[3], key=key) == [4]
    expected = [(0, None, None), *((number, number, None) for number in range(1, 5))]
    assert rows(database, WRITTEN) == (expected[-1:] if key else expected)


def test_after_an_odd_row_with_more_columns_came_first_and_alone_one_row_at_most_is_refused(
    play: Callable[..., list[int]], database: str
) -> None:
    run(database, TABLE)
    assert play([{"a": 0, "b": 0, "c": 0}], *([{"a": number, "b": number}] for number in range(1, 5))) == [1]
    assert [a for a, _, _ in rows(database, WRITTEN)] == [0, 2, 3, 4]


def test_a_function_that_names_a_column_wrongly_stops_the_sink_and_makes_no_dead_letters(
    play: Callable[..., list[int]], database: str
) -> None:
    run(database, TABLE)
    with pytest.raises(
        ConfigurationError, match=r"the table lacks the columns \['amount'\] that columns= makes"
    ):
        play([{"a": 1}, {"a": 2}], columns=lambda _, value: {"a": value["a"], "amount": 1})


def test_an_odd_row_of_a_function_among_others_is_a_dead_letter(
    play: Callable[..., list[int]], database: str
) -> None:
    run(database, TABLE)
    assert play([{"a": 1, "z": 2}, {"a": 2}], columns=lambda _, value: value) == [0]
