import pytest
from bench.figures import Figure, by_name
from bench.stages import ROWS, figures, table


def step(name: str, at: float, tasks: float, rest: float = 0.0) -> dict[str, object]:
    return {
        "step": name,
        "time": at,
        "cpu": {"tasks": tasks, "compilers": 1.0, "collector": 0.0, "rest": rest},
    }


STEPS = [
    step("planned", 105.0, 0.0, 2.0),
    step("bronze written", 107.0, 3.0, 2.0),
    step("repeats searched", 108.0, 4.0, 2.0),
    step("silver written", 112.0, 10.0, 2.0),
    step("batch written", 113.0, 10.5, 2.0),
    step("planned", 113.5, 10.5, 2.5),
    step("bronze written", 114.5, 12.5, 2.5),
    step("batches read", 116.0, 13.0, 3.0),
    step("results written", 119.0, 16.0, 3.0),
]
WHOLE = Figure("spark_etl", 20.0, "s", cpu_seconds=21.0, records=100)


def test_the_seconds_of_all_stages_are_the_whole_run_and_a_stage_of_several_batches_is_one() -> None:
    found = by_name(figures(WHOLE, 100.0, STEPS))
    assert tuple(found) == ROWS
    seconds = {
        name.rpartition("_")[2]: each.value or 0.0 for name, each in found.items() if "_stage_" in name
    }
    assert seconds == pytest.approx(
        {"start": 5.0, "bronze": 3.0, "search": 1.0, "silver": 4.0, "marks": 3.0, "results": 3.0, "end": 1.0}
    )
    assert sum(seconds.values()) == pytest.approx(20.0)


def test_the_cpu_seconds_are_those_of_the_whole_run_by_stage_and_by_kind() -> None:
    found = figures(WHOLE, 100.0, STEPS)
    assert sum(each.cpu_seconds or 0 for each in found) == pytest.approx(21.0)
    kinds = {each.name.rpartition("_")[2]: each.value for each in found if "_cpu_" in each.name}
    assert kinds == pytest.approx({"tasks": 16.0, "compilers": 1.0, "collector": 0.0, "rest": 4.0})


def test_the_page_says_the_share_of_each_stage_and_kind() -> None:
    shown = table(by_name(figures(WHOLE, 100.0, STEPS))).splitlines()
    assert "| silver: records are decoded, checked and written to silver | 4 | 20% | 6 |" in shown
    assert "| Java's compilers | 1 | 5% |" in shown
    assert "make bench-spark" in table({})
