from bench.figures import Figure, by_name
from bench.goals import Goal
from bench.tables import FIGURES_HEAD, figure_rows, goal_rows, markdown, terminal
from rich.console import Console

COUNT = Figure("count", 123_456.7, "records/s", "ceiling", 0.4567, 1.5, 81.25, 1_000_000)


def test_a_figure_is_shown_with_three_digits_and_large_numbers_whole() -> None:
    assert figure_rows([COUNT]) == [("count", "123,457", "records/s", "ceiling", "0.457", "1.5", "81.2", "")]


def test_a_row_that_failed_says_so() -> None:
    assert figure_rows([Figure("count", None, "", error="why")])[0][1] == "failed"


def test_a_goal_is_shown_with_its_limits_and_the_verdict() -> None:
    goals = [
        Goal("title", "count", 0.5, of="ceiling", at_least=0.4),
        Goal("memory", "count_mb", 64, at_most=120),
    ]
    figures = by_name([COUNT, Figure("ceiling", 246_913.4, "records/s")])
    assert goal_rows(goals, figures) == [
        ("title", "0.5", "≥ 0.4", "0.5", "aim reached"),
        ("memory", "", "≤ 120", "64", "not measured"),
    ]


def test_in_markdown_columns_of_numbers_stand_to_the_right() -> None:
    assert markdown(("row", "value", "unit"), [("a", "1,234", "s"), ("b", "0.5", "s")]) == (
        "| row | value | unit |\n| --- | ---: | --- |\n| a | 1,234 | s |\n| b | 0.5 | s |"
    )


def test_the_terminal_shows_every_cell() -> None:
    console = Console(width=130)
    with console.capture() as shown:
        console.print(terminal(FIGURES_HEAD, figure_rows([COUNT])))
    for cell in figure_rows([COUNT])[0]:
        assert cell in shown.get()
