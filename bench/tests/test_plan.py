import pytest
from bench.plan import BASELINES, chosen, steps


def test_no_row_is_measured_twice() -> None:
    rows = [row for step in steps() for row in step.rows]
    assert len(rows) == len(set(rows))


def test_every_row_comes_after_the_one_that_it_is_compared_with() -> None:
    order = [row for step in steps() for row in step.rows]
    for row, baseline in BASELINES.items():
        assert order.index(baseline) < order.index(row)


def test_the_quick_form_has_the_baselines_of_all_its_rows() -> None:
    rows = {row for step in chosen(steps(), quick=True) for row in step.rows}
    assert {BASELINES[row] for row in rows if row in BASELINES} <= rows
    assert {"count_exactly_once", "handler_exactly_once", "restore", "restart_ready"} <= rows


def test_a_row_is_measured_together_with_what_it_is_compared_with() -> None:
    rows = {row for step in chosen(steps(), quick=False, rows=["handler_exactly_once"]) for row in step.rows}
    assert rows == {"ceiling", "plain_loop", "handler_exactly_once"}


def test_a_row_that_does_not_exist_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(ValueError, match=r"no row nonsense; there are .*ceiling, .*count_exactly_once"):
        chosen(steps(), quick=False, rows=["nonsense"])
