"""Points in time as people give them."""

import pytest

from streamtable_admin.errors import Refused
from streamtable_cli.times import milliseconds

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
        ("2023-11-14T22:13:20.250Z", 1_700_000_000_250),
        ("2004-06-28T09:01:23.156Z", 1_088_413_283_156),
        ("2038-07-01T00:00:00.001Z", 2_161_555_200_001),
        ("1970-01-01T00:00Z", 0),
        ("90s", 1_699_999_910_000),
        ("15m", 1_699_999_100_000),
        ("2h", 1_699_992_800_000),
        ("1d", 1_699_913_600_000),
    ],
)
def test_a_time_has_a_zone_or_is_relative(text: str, expected: int) -> None:
    assert milliseconds(text, NOW) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "2023-11-14T22:13:20",
        "2023-11-14",
        "2026-13-01T00:00Z",
        "yesterday",
        "1e9",
        "15",
        "-5m",
        "5 m",
        "1_0s",
        "nan",
        "9999999m",
        "2023-02-29T00:00Z",
        "\uff11\uff15m",
    ],
)
def test_an_invalid_time_is_rejected_with_the_expected_form(text: str) -> None:
    with pytest.raises(Refused, match="with its zone"):
        milliseconds(text, NOW)
