import json
from io import StringIO

from streamtable_spark.jobs.positions import Span
from streamtable_spark.jobs.progress import Progress


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def run(out: StringIO) -> str:
    times = iter([0.0, 0.0, 2.0, 5.0])
    progress = Progress(["one", "two"], out, lambda: next(times))
    progress.stage("one")
    progress.stage("two", events=7)
    progress.done(rows=3)
    return out.getvalue()


def test_a_program_gets_a_line_of_json_for_each_stage() -> None:
    lines = [json.loads(line) for line in run(StringIO()).splitlines()]
    assert lines == [
        {"state": "running", "stage": "one", "of": 2, "done": 0, "seconds": 0.0},
        {"state": "running", "stage": "two", "of": 2, "done": 1, "seconds": 2.0, "events": 7},
        {"state": "done", "stage": "done", "of": 2, "done": 2, "seconds": 5.0, "rows": 3},
    ]


def test_a_person_gets_one_bar_that_grows() -> None:
    shown = run(Terminal()).split("\r")
    assert "[............] ".replace(".", "") not in shown[1]
    assert shown[1].count("#") == 0
    assert shown[2].count("#") == 12
    assert "1/2 two, events 7 (2 s)" in shown[2]
    assert shown[3].count("#") == 24
    assert shown[3].endswith("\n")


def test_a_stage_that_says_how_far_it_is_fills_its_own_part_of_the_bar() -> None:
    out = Terminal()
    progress = Progress(["one", "two"], out, lambda: 0.0)
    progress.stage("one", part=0.5)
    assert out.getvalue().count("#") == 6


def test_the_standing_has_all_that_is_known_of_a_jobs_progress() -> None:
    progress = Progress(["one", "two"], StringIO(), lambda: 0.0)
    progress.stage("one", table="bronze", events=7)
    first = progress.standing
    progress.reads({"clicks": {0: Span(2, 5)}})
    assert progress.standing is not first
    progress.stage("two", rows=3)
    progress.differs(1, [])
    assert (first.stage, progress.standing.stage) == ("one", "two")
    progress.done(summary="1 key differs")
    last = progress.standing
    assert (last.stage, last.counts, last.records, last.share) == ("", {"events": 7, "rows": 3}, 7, 1.0)
    assert (last.inputs, last.differences, last.summary) == ({"clicks": {0: Span(2, 5)}}, 1, "1 key differs")
