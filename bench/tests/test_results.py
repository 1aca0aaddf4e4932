from pathlib import Path

from bench.figures import Figure
from bench.results import (
    Recorder,
    figures_of,
    last_run,
    last_runs,
    read_published,
    read_ratios,
    write_ratios,
)


def test_lines_of_runs_are_appended_and_the_last_run_of_a_kind_is_found(tmp_path: Path) -> None:
    file = tmp_path / "build" / "bench.jsonl"
    for kind, time, rows in (
        ("full", "1", "ab"),
        ("quick", "2", "c"),
        ("full", "3", "de"),
        ("quick", "4", "f"),
    ):
        recorder = Recorder(file, kind, time, {"commit": "abc", "machine": {"cores": 2}})
        for row in rows:
            recorder.add(Figure(row, 1.0, "s"))
    lines = last_run(file, "full")
    assert [line["name"] for line in lines] == ["d", "e"]
    assert lines[0] | {"name": "d", "value": 1.0, "run": "full", "time": "3", "commit": "abc"} == lines[0]
    assert figures_of(lines) == [Figure("d", 1.0, "s"), Figure("e", 1.0, "s")]
    assert [[line["name"] for line in run] for run in last_runs(file, "full", 3)] == [["a", "b"], ["d", "e"]]
    assert [[line["name"] for line in run] for run in last_runs(file, "quick", 1)] == [["f"]]


def test_a_kind_that_was_never_run_has_no_lines(tmp_path: Path) -> None:
    assert last_run(tmp_path / "absent", "full") == []


def test_ratios_are_kept_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    assert read_ratios(file) == {}
    write_ratios({"count": 0.5}, file)
    assert read_ratios(file) == {"count": 0.5}


def test_nothing_is_published_where_there_is_no_file(tmp_path: Path) -> None:
    assert read_published(tmp_path / "absent") == {}
