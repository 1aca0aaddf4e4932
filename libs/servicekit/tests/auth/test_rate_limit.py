import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicekit.auth.rate_limit import RateLimiter, peer_name


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_is_allowed_at_once_and_then_the_rate() -> None:
    clock = Clock()
    limiter = RateLimiter(2.0, 3, clock=clock)
    assert [limiter.take("a").remaining for _ in range(3)] == [2, 1, 0]
    refused = limiter.take("a")
    assert not refused.allowed
    assert refused.retry_seconds == pytest.approx(0.5)
    assert refused.full_seconds == pytest.approx(1.5)
    clock.now += 0.5
    assert limiter.take("a").allowed
    assert not limiter.take("a").allowed
    clock.now += 100
    assert limiter.take("a").remaining == 2


def test_callers_do_not_share_a_bucket() -> None:
    limiter = RateLimiter(1.0, 1, clock=Clock())
    assert limiter.take("a").allowed
    assert limiter.take("b").allowed
    assert not limiter.take("a").allowed


def test_a_rejected_request_does_not_delay_the_next_one() -> None:
    clock = Clock()
    limiter = RateLimiter(1.0, 1, clock=clock)
    limiter.take("a")
    assert {limiter.take("a").retry_seconds for _ in range(5)} == {1.0}


def test_only_the_most_recent_callers_are_tracked() -> None:
    limiter = RateLimiter(1.0, 1, callers_max=3, clock=Clock())
    for name in ("a", "b", "c", "d"):
        assert limiter.take(name).allowed
    assert len(limiter) == 3
    assert not limiter.take("d").allowed
    assert limiter.take("a").allowed


@given(
    rate=st.floats(0.1, 1000),
    burst=st.integers(1, 50),
    waits=st.lists(st.floats(0, 2), max_size=200),
)
def test_no_more_requests_are_allowed_than_burst_and_rate(
    rate: float, burst: int, waits: list[float]
) -> None:
    clock = Clock()
    limiter = RateLimiter(rate, burst, clock=clock)
    allowed = 0
    for wait in waits:
        clock.now += wait
        allowed += limiter.take("a").allowed
    assert allowed <= burst + (clock.now - 1000) * rate + 1e-6


@pytest.mark.parametrize("given", [(0, 1), (-1, 1), (math.inf, 1), (math.nan, 1), (1, 0)])
def test_limits_that_are_not_positive_are_rejected(given: tuple[float, int]) -> None:
    with pytest.raises(ValueError, match="positive"):
        RateLimiter(*given)


def test_an_ipv4_peer_counts_by_address_and_an_ipv6_peer_by_network() -> None:
    assert peer_name("10.0.0.1") != peer_name("10.0.0.2")
    assert peer_name("2001:db8::1") == peer_name("2001:db8::ffff:2")
    assert peer_name("2001:db8:0:1::1") != peer_name("2001:db8::1")
    assert peer_name("::ffff:10.0.0.1") == peer_name("10.0.0.1")
    assert peer_name(None) == "peer"


def test_one_request_of_one_caller_is_the_smallest_limit() -> None:
    limiter = RateLimiter(1.0, 1, callers_max=1, clock=lambda: 0.0)
    assert [limiter.take("a").allowed for _ in range(2)] == [True, False]


def test_the_least_recently_active_caller_is_dropped_even_if_it_was_rejected() -> None:
    limiter = RateLimiter(1.0, 1, callers_max=2, clock=lambda: 0.0)
    assert limiter.take("rejected").allowed
    assert limiter.take("quiet").allowed
    assert not limiter.take("rejected").allowed
    assert limiter.take("new").allowed
    assert not limiter.take("rejected").allowed, "its last request is more recent than the quiet one's"
    assert limiter.take("quiet").allowed, "it was forgotten"
