import pytest

from streamtable.base.types import Committed, NextOffset
from streamtable_spark.errors import ConfigurationError, InputLost
from streamtable_spark.jobs.history import whole
from streamtable_spark.jobs.positions import Cut, Place, Span, check_within, cut_of, parse_until

TWO = {"clicks": 2}


def committed(first: Committed | None, second: Committed | None) -> dict[Place, Committed | None]:
    return {Place("clicks", 0): first, Place("clicks", 1): second}


def test_until_names_the_offsets_of_all_partitions() -> None:
    assert parse_until("now", TWO) is None
    assert parse_until('{"clicks": {"0": 5, "1": 0}}', TWO) == {"clicks": {0: 5, 1: 0}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "neither 'now' nor JSON"),
        ("[1]", "valid dictionary"),
        ("{}", "at least 1 item"),
        ('{"x": {"0": 1}}', "'x' is no input"),
        ('{"clicks": 5}', "clicks: 5: Input should be a valid dictionary"),
        ('{"clicks": {"0": 5}}', "'1' is missing"),
        ('{"clicks": {"0": 5, "1": 5, "2": 5}}', "'2' is none of its partitions"),
        ('{"clicks": {"0": 5, "01": 5, "1": 5}}', "'01' is none of its partitions"),
        ('{"clicks": {"0": 5, "0": 6, "1": 5}}', "twice"),
        ('{"clicks": {"0": 1.5, "1": 5}}', "clicks[0]: 1.5: "),
        ('{"clicks": {"0": true, "1": 5}}', "true: Input should be a valid integer"),
        ('{"clicks": {"0": "latest", "1": 5}}', "valid integer"),
        ('{"clicks": {"0": -2, "1": -1}}', "-2: Input should be greater"),
        ("[" * 100_000, "neither 'now' nor JSON"),
    ],
)
def test_an_until_that_does_not_fit_is_refused_with_the_place(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_until(text, TWO)
    assert said in str(raised.value)


def test_offsets_beyond_the_end_are_refused_with_both_numbers() -> None:
    check_within({"clicks": {0: 5}}, {"clicks": {0: 5}})
    with pytest.raises(ConfigurationError, match=r"clicks\[0\] is requested up to 6, .* ends at 5"):
        check_within({"clicks": {0: 6}}, {"clicks": {0: 5}})


def test_a_cut_is_what_was_committed_with_the_table_of_that_moment() -> None:
    metadata = '{"changelog": 9, "exact": true}'
    assert cut_of("g", committed(Committed(NextOffset(5), metadata), None)) == Cut(
        {"clicks": {0: 5, 1: 0}}, {"table": {0: 9, 1: 0}}
    )


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (None, "no committed offsets"),
        (Committed(NextOffset(5), ""), "a tool has set the offset"),
        (Committed(NextOffset(5), '{"changelog": 9, "exact": false}'), "at least once"),
    ],
)
def test_a_group_without_exact_positions_has_no_cut(first: Committed | None, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        cut_of("g", committed(first, None))


def test_history_that_has_lost_its_beginning_is_refused_unless_that_is_accepted() -> None:
    ends, starts = {"clicks": {0: 9, 1: 4}}, {"clicks": {0: 3, 1: 4}}
    with pytest.raises(InputLost, match=r"clicks\[0\] begins at offset 3.*1 other"):
        whole(ends, starts, allow_missing=False)
    assert whole(ends, starts, allow_missing=True) == {"clicks": {0: Span(3, 9), 1: Span(4, 4)}}
