import pytest
from bench.figures import Figure, by_name
from bench.scaling import expected, in_parallel, table
from hypothesis import given
from hypothesis import strategies as st

RATES = st.floats(1e3, 1e7)


@pytest.mark.parametrize(
    ("two", "share"), [(100.0, 0.0), (200.0, 1.0), (160.0, 0.75), (90.0, 0.0), (250.0, 1.0)]
)
def test_what_a_second_core_brings_is_the_share_that_runs_in_parallel(two: float, share: float) -> None:
    assert in_parallel(100.0, two) == pytest.approx(share)


@given(RATES, RATES)
def test_what_was_measured_on_two_cores_is_what_is_expected_of_two(one: float, two: float) -> None:
    share = in_parallel(one, two)
    assert expected(one, share, 1) == pytest.approx(one)
    if one <= two <= 2 * one:
        assert expected(one, share, 2) == pytest.approx(two)
    assert expected(one, share, 8) <= expected(one, share, 32) * (1 + 1e-9) <= 32 * one * (1 + 1e-6)


def test_the_page_has_a_row_for_each_count_that_was_measured_on_both() -> None:
    figures = by_name(
        [
            Figure("spark_count_kafka_1_core", 100_000.0, "records/s"),
            Figure("spark_count_kafka", 160_000.0, "records/s"),
            Figure("spark_count_kafka_shuffle", 4.5, "bytes/record"),
            Figure("spark_count_silver", 900_000.0, "records/s"),
        ]
    )
    (row,) = table(figures).splitlines()[2:]
    assert row == "| from Kafka | 100,000 | 160,000 | 75% | 290,909 | 365,714 | 4.5 bytes |"
    assert "make bench-spark" in table({})
