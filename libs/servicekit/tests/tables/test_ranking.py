from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicekit.tables.ranking import Ranking

USERS = st.sampled_from([f"u{n}" for n in range(12)])


@given(st.integers(1, 4), st.lists(USERS, max_size=200))
def test_a_ranking_of_growing_counts_is_always_exact(size: int, clicks: list[str]) -> None:
    ranking = Ranking(size)
    counts: Counter[str] = Counter()
    for user in clicks:
        counts[user] += 1
        ranking.update(user, counts[user])
        assert ranking.complete
        assert ranking.top(size) == sorted(counts.items(), key=lambda row: (-row[1], row[0]))[:size]


@given(st.integers(1, 4), st.lists(st.tuples(USERS, st.none() | st.integers(0, 9)), max_size=200))
def test_a_ranking_of_any_changes_is_exact_or_incomplete(
    size: int, changes: list[tuple[str, int | None]]
) -> None:
    ranking = Ranking(size)
    counts: dict[str, int] = {}
    for user, count in changes:
        if count is None:
            counts.pop(user, None)
        else:
            counts[user] = count
        ranking.update(user, count)
        if not ranking.complete:
            with pytest.raises(ValueError, match="does not hold"):
                ranking.top(size)
            ranking.rebuild(counts.items())
        assert ranking.top(size) == sorted(counts.items(), key=lambda row: (-row[1], row[0]))[:size]


def test_a_ranking_holds_at_most_twice_its_size() -> None:
    ranking = Ranking(10)
    ranking.rebuild((f"u{n}", n) for n in range(10_000))
    assert len(ranking._numbers) <= 20
    assert ranking.top(2) == [("u9999", 9999), ("u9998", 9998)]


def test_a_ranking_rejects_a_limit_above_its_size() -> None:
    with pytest.raises(ValueError, match="does not hold"):
        Ranking(10).top(11)
