import pytest

from servicekit.streams import Streams
from streamtable.errors import RetryLater


def test_more_streams_than_the_limit_are_refused_until_one_ends() -> None:
    streams = Streams(limit=1)
    with streams.admit():
        assert streams.open_count == 1
        with pytest.raises(RetryLater), streams.admit():
            pass
    with streams.admit():
        pass
    assert streams.open_count == 0


def test_a_stream_ends_when_its_time_is_over() -> None:
    now = 0.0
    streams = Streams(seconds_max=10, clock=lambda: now)
    with streams.admit() as alive:
        now = 9.9
        assert alive()
        now = 10.0
        assert not alive()


def test_stopping_ends_all_streams_and_admits_no_more() -> None:
    streams = Streams()
    with streams.admit() as alive:
        streams.stop()
        assert not alive()
        with pytest.raises(RetryLater), streams.admit():
            pass
