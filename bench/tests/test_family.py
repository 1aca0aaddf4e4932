import sys
from pathlib import Path

from bench.family import FamilyProgram, Share, processes, together

KNOWN = {1: Share(0, 1.0, 10.0), 2: Share(1, 2.0, 20.0), 3: Share(2, 4.0, 40.0), 9: Share(0, 64.0, 640.0)}
SPEND = "import time\nblock = bytearray(64_000_000)\nwhile time.process_time() < 0.3: pass\ntime.sleep(0.3)"


def test_a_process_and_its_descendants_are_one_and_others_do_not_count() -> None:
    assert together(1, KNOWN) == Share(0, 7.0, 70.0)
    assert together(2, KNOWN) == Share(0, 6.0, 60.0)
    assert together(7, KNOWN) == Share(0, 0, 0)


def test_a_child_that_still_has_its_parents_memory_adds_none() -> None:
    java = Share(0, 1.0, 900.0, 3 << 30)
    assert together(1, {1: java, 2: Share(1, 0.5, 900.0, 3 << 30)}) == Share(0, 1.5, 900.0)
    assert together(1, {1: java, 2: Share(1, 0.5, 4.0, 1 << 20)}) == Share(0, 1.5, 904.0)


def test_a_name_with_spaces_and_brackets_does_not_move_the_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "42"
    folder.mkdir()
    numbers = " ".join(str(number) for number in range(5, 60))
    (folder / "stat").write_text(f"42 (a) S (b) S 7 {numbers}")
    (share,) = processes([folder, tmp_path / "self"]).values()
    assert share.parent == 7
    assert share.cpu > 0


def test_what_a_child_spends_is_its_parents(tmp_path: Path) -> None:
    script = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {SPEND!r}], check=True)"
    with FamilyProgram([sys.executable, "-c", script], {}, tmp_path / "log") as program:
        program.end()
        ended = program.now()
    assert ended.cpu >= 0.25, "Linux counts ticks of 10 ms"
    assert program.rss_mb > 70
    assert 0.6 < ended.time - program.started < 30
