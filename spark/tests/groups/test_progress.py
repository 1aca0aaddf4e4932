import json
from io import StringIO

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
