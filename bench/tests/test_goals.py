import pytest
from bench.figures import Figure, by_name
from bench.goals import Goal, Verdict, of_rows, read_goals
from bench.peers import captures, flows
from bench.peers.rows import peers
from bench.plan import steps
from bench.spark import SparkRows

FIGURES = by_name(
    [
        Figure("count", 400.0, "records/s", cpu_seconds=2.0, records=1_000_000),
        Figure("ceiling", 1_000.0, "records/s", cpu_seconds=4.0, records=2_000_000),
        Figure("loop", 200.0, "records/s", cpu_seconds=4.0, records=1_000_000),
        Figure("memory", 100.0, "MB"),
        Figure("failed", None, "MB", error="why"),
    ]
)


def test_a_goal_is_about_a_value_or_about_its_share_of_another_rows() -> None:
    assert Goal("t", "memory", 50, at_most=120).reached(FIGURES) == 100.0
    assert Goal("t", "count", 1, of="ceiling", at_least=0.2).reached(FIGURES) == 0.4


def test_cpu_is_compared_a_record() -> None:
    assert Goal("t", "count", 1, of="loop", figure="cpu", at_most=0.6).reached(FIGURES) == 0.5
    assert Goal("t", "count", 1, of="ceiling", figure="cpu", at_most=0.6).reached(FIGURES) == 1.0


@pytest.mark.parametrize(
    ("row", "of"), [("absent", None), ("failed", None), ("count", "absent"), ("count", "failed")]
)
def test_what_was_not_measured_has_no_verdict(row: str, of: str | None) -> None:
    goal = Goal("t", row, 1, of=of, at_least=0.5)
    assert goal.verdict(goal.reached(FIGURES)) is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("number", "verdict"),
    [(0.19, Verdict.MISSED), (0.2, Verdict.ENOUGH), (0.39, Verdict.ENOUGH), (0.4, Verdict.AIM)],
)
def test_where_more_is_better_a_figure_must_not_be_lower_than_the_limit(
    number: float, verdict: Verdict
) -> None:
    assert Goal("t", "count", 0.4, at_least=0.2).verdict(number) is verdict


@pytest.mark.parametrize(
    ("number", "verdict"),
    [(2.1, Verdict.MISSED), (2.0, Verdict.ENOUGH), (1.1, Verdict.ENOUGH), (1.0, Verdict.AIM)],
)
def test_where_less_is_better_a_figure_must_not_be_higher_than_the_limit(
    number: float, verdict: Verdict
) -> None:
    assert Goal("t", "count", 1.0, at_most=2.0).verdict(number) is verdict


@pytest.mark.parametrize("limits", [{}, {"at_least": 1.0, "at_most": 2.0}])
def test_a_goal_has_one_limit(limits: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="give at_least or at_most"):
        Goal("t", "count", 1.0, **limits)  # type: ignore[arg-type] # mypy would let a number be a name


def test_only_goals_whose_rows_were_measured_are_shown() -> None:
    goals = [Goal("a", "count", 1, of="ceiling", at_least=0), Goal("b", "count", 1, of="absent", at_least=0)]
    assert [goal.title for goal in of_rows(goals, FIGURES)] == ["a"]


def test_every_goal_is_about_rows_that_the_benchmark_measures() -> None:
    measured = {row for step in [*steps(), *SparkRows().steps()] for row in step.rows}
    measured |= (
        {f"peer_{peer.name}" for peer in peers()} | {each.name for each in flows.BESIDE} | {captures.ROW}
    )
    for goal in read_goals():
        assert {goal.row, goal.of} - {None} <= measured, goal.title


def test_the_aim_of_every_goal_is_beyond_its_limit() -> None:
    for goal in read_goals():
        assert goal.verdict(goal.aim) is Verdict.AIM
        limit = goal.at_least if goal.at_least is not None else goal.at_most
        assert goal.verdict(limit) is Verdict.ENOUGH, goal.title
