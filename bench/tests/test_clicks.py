from collections import Counter

import pytest
from bench.clicks import Clicks, Encoder, click, users

from contracts.records import USER_CLICK
from streamtable import Avro


@pytest.mark.parametrize("user", ["a", "user-12345", "u" * 63])
def test_a_click_made_from_the_template_is_the_one_that_the_codec_makes(user: str) -> None:
    assert Encoder().encode(user.encode()) == Avro(USER_CLICK).encode(click(user))


def test_a_click_has_about_80_bytes() -> None:
    assert 70 <= len(Encoder().encode(b"user-12345")) <= 100


def drawn(clicks: Clicks) -> list[int]:
    return [number for chunk in users(clicks) for number in chunk]


def test_the_same_clicks_have_the_same_users_each_time() -> None:
    clicks = Clicks(1_000, 100)
    assert drawn(clicks) == drawn(clicks)
    assert len(drawn(clicks)) == 1_000


def test_users_are_alike_without_skew_and_follow_zipfs_law_with_it() -> None:
    even = Counter(drawn(Clicks(200_000, 100)))
    assert min(even.values()) > 0.8 * 2_000
    assert max(even.values()) < 1.2 * 2_000
    skewed = Counter(drawn(Clicks(200_000, 100, skew=1.1)))
    assert skewed[0] / skewed[9] == pytest.approx(10**1.1, rel=0.1)


def test_every_user_clicks_once_if_requested() -> None:
    assert sorted(drawn(Clicks(150_000, 150_000, once=True))) == list(range(150_000))


def test_different_clicks_have_different_topics() -> None:
    kinds = [
        Clicks(10, 10),
        Clicks(20, 10),
        Clicks(10, 20),
        Clicks(10, 10, skew=1.1),
        Clicks(10, 10, once=True),
        Clicks(10, 10, partitions=16),
    ]
    assert len({each.topic for each in kinds}) == len(kinds)
