from datetime import date

import pytest

from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs.backfill import DateRange, day


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-13-01",
        "2026-02-30",
        "2026-1-1",
        "20260101",
        "2026-01-01T00:00",
        "2026-W01-1",
        "٢٠٢٦-01-01",
        "now",
    ],
)
def test_what_is_no_day_is_refused_with_the_arguments_name(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--from .* a day such as"):
        day(text, "--from")


def test_an_end_that_is_not_later_than_the_start_is_refused_with_the_end_that_was_meant() -> None:
    with pytest.raises(ConfigurationError, match="--to 2026-03-02"):
        DateRange(date(2026, 3, 1), date(2026, 3, 1))
    with pytest.raises(ConfigurationError, match="later"):
        DateRange(date(2026, 3, 2), date(2026, 3, 1))


def test_the_end_is_not_among_the_days() -> None:
    assert (
        DateRange(day("2026-03-29", "--from"), day("2026-03-30", "--to")).condition
        == "day >= DATE'2026-03-29' AND day < DATE'2026-03-30'"
    )
