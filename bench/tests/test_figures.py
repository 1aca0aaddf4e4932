import pytest
from bench.figures import Figure, by_name, middle, percentile, rounded


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1), (1, 1), (50, 50), (98.5, 99), (99, 99), (99.1, 100), (100, 100)]
)
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(
    percent: float, expected: float
) -> None:
    assert percentile(range(100, 0, -1), percent) == expected


def test_one_value_is_each_of_its_percentiles() -> None:
    assert [percentile([7.0], percent) for percent in (0, 50, 99)] == [7.0, 7.0, 7.0]


def test_nothing_has_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_cpu_a_record_is_in_microseconds() -> None:
    assert Figure("row", 1.0, "records/s", cpu_seconds=3.0, records=2_000_000).cpu_us == 1.5
    assert Figure("row", 1.0, "s", cpu_seconds=3.0).cpu_us is None


def test_a_figure_is_compared_with_the_one_measured_in_the_same_run() -> None:
    others = by_name([Figure("ceiling", 1_000.0, "records/s")])
    figure = Figure("count", 450.0, "records/s")
    assert figure.compared("ceiling", others).ratio == 0.45
    assert figure.compared("ceiling", others).baseline == "ceiling"


@pytest.mark.parametrize("baseline", [None, "other", "failed"])
def test_without_a_baseline_that_was_measured_there_is_no_ratio(baseline: str | None) -> None:
    others = by_name([Figure("failed", None, "records/s", error="why")])
    assert Figure("count", 450.0, "records/s").compared(baseline, others).ratio is None


def test_the_middle_of_three_tries_is_the_median_and_of_two_the_lower() -> None:
    tries = [Figure("row", value, "s") for value in (3.0, 1.0, 2.0)]
    assert middle(tries).value == 2.0
    assert middle(tries[:2]).value == 1.0


def test_a_try_that_failed_is_not_hidden_by_the_others() -> None:
    failed = Figure("row", None, "s", error="why")
    assert middle([Figure("row", 1.0, "s"), failed, Figure("row", 2.0, "s")]) is failed


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0.0123456, 0.01235), (1234567.8, 1234568.0), (12.3456, 12.35), (0.0, 0.0), (7, 7), ("text", "text")],
)
def test_numbers_are_written_with_four_digits(number: object, expected: object) -> None:
    assert rounded(number) == expected


def test_a_figure_comes_back_from_its_line_whatever_else_the_line_says() -> None:
    figure = Figure("row", 1.5, "s", baseline="other", ratio=0.5, cpu_seconds=1.0, rss_mb=60.0, records=10)
    assert Figure.of_line({**figure.line(), "time": "now", "commit": "abc"}) == figure
