"""Late records are counted in the Tester's summary, which a failing test shows."""

from datetime import timedelta
from pathlib import Path

import pytest

from streamtable import EventTime, Long, Stream, String
from streamtable.flow import Flow, Tumbling
from streamtable_testing import Tester

pytest_plugins = ["pytester"]
EVENTS: Stream[str, int] = Stream("events", String(), Long())
BEGAN_MS = 1_600_000_000_000
SUMMARY = "2 of 3 records (67%) were late for f-n: events had moved the watermark. "


def emit_late(tester: Tester) -> None:
    flow = Flow("f", event_time=EventTime(idle_after=None))
    minute = Tumbling(timedelta(minutes=1), grace=timedelta(0))
    flow.stream(EVENTS, time=lambda at: at).group_by_key().window(minute).count("n")
    tester.run(flow)
    for hours in (2, 1, 0):
        tester.emit(EVENTS, "a", BEGAN_MS + hours * 3_600_000)


def test_late_records_are_counted_over_all_lives_of_a_process(tester: Tester) -> None:
    assert tester.summary() == ""
    emit_late(tester)
    assert tester.summary().startswith(SUMMARY)


def test_an_error_that_leaves_the_block_carries_the_summary() -> None:
    def fail() -> None:
        with Tester() as tester:
            emit_late(tester)
            raise AssertionError("wrong")

    with pytest.raises(AssertionError) as failed:
        fail()
    (note,) = failed.value.__notes__
    assert note.startswith(SUMMARY)


def test_the_report_of_a_failing_test_shows_the_summary_of_the_fixture(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    pytester.makepyfile(
        """
        from test_late_summary import emit_late

        def test_fails(tester):
            emit_late(tester)
            assert False

        def test_passes(tester):
            emit_late(tester)
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:xdist")
    result.assert_outcomes(failed=1, passed=1)
    shown = [line for line in result.outlines if line.startswith(SUMMARY)]
    assert len(shown) == 1
