import pytest
from bench.compare import Held, better, hold, medians, ratios, worse
from bench.figures import Figure


def test_only_rows_with_a_baseline_are_held_to_anything() -> None:
    figures = [Figure("ceiling", 1.0, "records/s"), Figure("count", 0.4, "records/s", "ceiling", 0.4)]
    assert ratios(figures) == {"count": 0.4}


def test_a_row_may_lose_a_fifth_of_its_ratio_and_no_more() -> None:
    assert worse({"count": 0.401}, {"count": 0.5}) == []
    assert worse({"count": 0.39}, {"count": 0.5}) == ["count is 0.390 of its baseline, 22% less than 0.500"]


def test_a_row_that_is_missing_now_is_a_loss() -> None:
    assert worse({}, {"count": 0.5}) == ["count was not measured"]


def test_a_row_that_is_new_is_held_to_nothing() -> None:
    assert worse({"count": 0.1}, {}) == []
    assert better({"count": 0.1}, {}) == []


def test_a_gain_of_more_than_a_fifth_is_reported() -> None:
    assert better({"count": 0.61, "other": 0.59}, {"count": 0.5, "other": 0.5}) == ["count"]


def test_of_three_tries_the_median_counts_so_that_one_bad_one_does_not() -> None:
    tries = [{"count": 0.1}, {"count": 0.5}, {"count": 0.48}]
    assert medians(tries) == {"count": 0.48}
    assert worse(medians(tries), {"count": 0.5}) == []


class Runs:
    """Runs that find these ratios one after the other and take so long each."""

    def __init__(self, *found: float, seconds: float = 60.0) -> None:
        self._found = list(found)
        self._seconds = seconds
        self._now = 0.0

    def measure(self) -> dict[str, float]:
        self._now += self._seconds
        return {"count": self._found.pop(0)}

    def held_to(self, ratio: float) -> Held:
        return hold(self.measure, {"count": ratio}, lambda: self._now)


def test_one_run_is_enough_if_nothing_is_lost() -> None:
    assert Runs(0.5).held_to(0.5) == ([], [], 1)
    assert Runs(0.7).held_to(0.5) == ([], ["count"], 1)


@pytest.mark.parametrize(("found", "tries"), [((0.3, 0.6), 2), ((0.3, 0.4, 0.5), 3)])
def test_a_loss_that_is_noise_goes_away_in_the_median_of_further_tries(
    found: tuple[float, ...], tries: int
) -> None:
    held = Runs(*found).held_to(0.5)
    assert (held.lost, held.tries) == ([], tries)


def test_a_loss_that_stays_is_one_after_three_tries() -> None:
    held = Runs(0.3, 0.45, 0.35).held_to(0.5)
    assert held == (["count is 0.350 of its baseline, 30% less than 0.500"], [], 3)


def test_there_is_no_further_try_that_would_take_longer_than_four_minutes_in_all() -> None:
    assert Runs(0.3, 0.3, 0.3, seconds=80).held_to(0.5).tries == 3
    assert Runs(0.3, 0.3, 0.3, seconds=85).held_to(0.5).tries == 2
    assert Runs(0.3, seconds=130).held_to(0.5).tries == 1
