from pathlib import Path

from bench.programs.spark_steps import REST, Steps


def thread(folder: Path, number: int, name: str, user: int, system: int) -> Path:
    made = folder / "7" / "task" / str(number)
    made.mkdir(parents=True, exist_ok=True)
    numbers = " ".join(["S", *["0"] * 10, str(user), str(system), "9", "9"])
    (made / "stat").write_text(f"{number} ({name}) {numbers}")
    return made


def test_the_cpu_of_each_kind_of_thread_is_summed_and_the_rest_is_what_no_kind_has(tmp_path: Path) -> None:
    threads = [
        thread(tmp_path, 1, "Executor task l", 100, 20),
        thread(tmp_path, 2, "Executor task l", 30, 0),
        thread(tmp_path, 3, "C2 CompilerThre", 40, 10),
        thread(tmp_path, 4, "VM Thread", 5, 0),
        thread(tmp_path, 5, "stream (etl) x", 70, 0),
    ]
    found = Steps().by_kind(4.0, threads)
    assert {kind: round(seconds, 2) for kind, seconds in found.items()} == {
        "tasks": 1.5,
        "compilers": 0.5,
        "collector": 0.05,
        REST: 1.95,
    }


def test_a_thread_that_has_ended_keeps_its_seconds(tmp_path: Path) -> None:
    steps = Steps()
    first = thread(tmp_path, 1, "Executor task l", 100, 0)
    steps.by_kind(2.0, [first])
    (first / "stat").unlink()
    assert steps.by_kind(3.0, [first, tmp_path / "gone"])["tasks"] == 1.0
