import pytest

from streamtable_testing.clock import VirtualClock


def test_the_clock_stands_still_until_a_sleep_or_an_advance() -> None:
    clock = VirtualClock(100.0)
    assert (clock.now(), clock.monotonic()) == (100.0, 100.0)
    clock.sleep(2.0)
    clock.advance(3.0)
    assert (clock.now(), clock.monotonic()) == (105.0, 105.0)


def test_it_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="back"):
        VirtualClock().advance(-1.0)
