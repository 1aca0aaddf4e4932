"""A flow that accepts records from further ahead than a grace says so."""

from datetime import timedelta

from structlog.testing import capture_logs

from streamtable import EventTime, Long, Stream, String
from streamtable.flow import Flow, Tumbling

TIMES = Stream("times", String(), Long())


def counting(event_time: EventTime | None, grace: timedelta = timedelta(seconds=10)) -> Flow:
    flow = Flow("f", event_time=event_time)
    windows = (
        flow.stream(TIMES, time=lambda at: at)
        .group_by_key()
        .window(Tumbling(timedelta(minutes=1), grace=grace))
    )
    windows.count("counts")
    return flow


def test_a_flow_with_a_max_ahead_that_is_larger_than_a_grace_says_so_when_it_is_built() -> None:
    with capture_logs() as logs:
        assert counting(EventTime(max_ahead=timedelta(seconds=11))).groups
        assert counting(EventTime(max_ahead=None)).groups
    assert [(each["log_level"], each["flow"]) for each in logs] == [("warning", "f")] * 2
    assert "up to 11 s ahead" in logs[0]["reason"]
    assert "grace is 10 s at count 'counts'" in logs[0]["reason"]
    assert "any time ahead" in logs[1]["reason"]


def test_a_flow_with_a_max_ahead_within_its_graces_says_nothing() -> None:
    flow = counting(EventTime(max_ahead=timedelta(seconds=10)))
    with capture_logs() as logs:
        assert flow.groups
    assert logs == []
    assert "ahead" not in str(flow.describe())


def test_the_default_is_in_the_description_alone() -> None:
    flow = counting(None)
    with capture_logs() as logs:
        assert flow.groups
    assert logs == []
    assert "up to 3600 s ahead are accepted, and the grace is 10 s" in str(flow.describe())
    hours = counting(None, grace=timedelta(hours=1))
    assert "ahead" not in str(hours.describe())
