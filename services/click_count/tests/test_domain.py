from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from click_count.domain import Ranking, add_click, key_choice, user_id, user_id_prefix


@pytest.mark.parametrize(
    "text", ["a", "alice", "é", "用户", "a b", "a%2fb", "x" * 128, "🂡" * 128, "...", "a'\"<>&"]
)
def test_user_ids_are_free_text(text: str) -> None:
    assert user_id(text) == text


@pytest.mark.parametrize(
    "text", ["", "x" * 129, "a\x00", "a\nb", "\x7f", "\x85", "\ufffd", chr(0xD800), "a/b", ".", ".."]
)
def test_what_addresses_and_logs_cannot_carry_is_no_user_id(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must ") as caught:
        user_id(text)
    assert not text.strip() or text not in str(caught.value) or text in "/."


def test_composed_and_decomposed_forms_are_different_users() -> None:
    assert user_id("é") != user_id("e\u0301")


def test_a_prefix_may_be_empty_but_not_hold_what_no_id_holds() -> None:
    assert user_id_prefix("") == ""
    for text in ("\x00", "\ufffd", "a/", "x" * 129):
        with pytest.raises(ValueError, match=r"^must "):
            user_id_prefix(text)


def test_a_click_adds_one() -> None:
    assert add_click(None) == 1
    assert add_click(41) == 42


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
def test_a_ranking_of_any_changes_is_exact_or_says_that_it_is_not(
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
    assert len(ranking._counts) <= 20
    assert ranking.top(2) == [("u9999", 9999), ("u9998", 9998)]


def test_a_ranking_refuses_a_longer_list_than_it_keeps() -> None:
    with pytest.raises(ValueError, match="does not hold"):
        Ranking(10).top(11)


def test_a_load_without_skew_chooses_all_keys_alike() -> None:
    choose = key_choice(10, 0.0, seed=1)
    chosen = Counter(choose() for _ in range(20_000))
    assert set(chosen) == {f"user-{n}" for n in range(1, 11)}
    assert all(1700 < count < 2300 for count in chosen.values())


def test_a_skewed_load_follows_zipfs_law() -> None:
    choose = key_choice(100, 1.0, seed=1)
    chosen = Counter(choose() for _ in range(50_000))
    assert chosen["user-1"] / chosen["user-2"] == pytest.approx(2, rel=0.1)
    assert chosen["user-1"] / chosen["user-10"] == pytest.approx(10, rel=0.2)


@pytest.mark.parametrize("skew", [0.0, 1.2])
def test_the_same_seed_gives_the_same_load(skew: float) -> None:
    one, same, other = (key_choice(1000, skew, seed) for seed in (7, 7, 8))
    chosen = [one() for _ in range(50)]
    assert chosen == [same() for _ in range(50)]
    assert chosen != [other() for _ in range(50)]
