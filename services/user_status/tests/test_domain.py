from collections.abc import Iterable, Sequence
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from contracts.records import UserStatus, UserStatusUpdate
from user_status.domain import change_of, is_later, joined, made_up_statuses, row_of

# Few values, so that equal times, ids and texts come together often.
UPDATES = st.builds(
    UserStatusUpdate,
    id=st.sampled_from("abc"),
    user_id=st.just("alice"),
    status=st.sampled_from(["at work", "at lunch", "gone"]),
    at=st.integers(0, 3),
)


def update(at: int, identity: str = "a", status: str = "at work") -> UserStatusUpdate:
    return UserStatusUpdate(id=identity, user_id="alice", status=status, at=at)


def kept(updates: Iterable[UserStatusUpdate]) -> UserStatus | None:
    row = None
    for each in updates:
        if is_later(each, row):
            row = row_of(each, None)
    return row


@given(st.lists(UPDATES, max_size=8).flatmap(lambda made: st.tuples(st.just(made), st.permutations(made))))
def test_all_orders_of_the_same_updates_come_to_the_same_status(
    orders: tuple[Sequence[UserStatusUpdate], Sequence[UserStatusUpdate]],
) -> None:
    assert kept(orders[0]) == kept(orders[1])


@given(st.lists(UPDATES, max_size=8), st.data())
def test_a_repeated_update_changes_nothing(updates: list[UserStatusUpdate], data: st.DataObject) -> None:
    row = kept(updates)
    if updates:
        assert not is_later(data.draw(st.sampled_from(updates)), row)


@given(st.lists(UPDATES, min_size=1))
def test_the_status_kept_is_one_of_the_latest_time(updates: list[UserStatusUpdate]) -> None:
    row = kept(updates)
    assert row is not None
    assert row["at"] == max(each["at"] for each in updates)


def test_an_update_that_comes_late_does_not_overwrite_a_later_one() -> None:
    assert not is_later(update(4, "z", "x"), row_of(update(5, "a", "y"), None))


def test_of_two_updates_of_one_time_the_greater_id_counts() -> None:
    assert is_later(update(5, "b"), row_of(update(5, "a"), None))
    assert not is_later(update(5, "a"), row_of(update(5, "b"), None))


def test_a_row_carries_the_clicks_of_its_moment_and_none_is_zero() -> None:
    assert row_of(update(5), 7) == UserStatus(status="at work", at=5, id="a", clicks=7)
    assert row_of(update(5), None)["clicks"] == 0


def test_a_change_names_both_statuses_and_the_first_has_none_before() -> None:
    first, second = row_of(update(1), 1), row_of(update(2, "b", "at lunch"), 2)
    assert change_of(None, first) == {"id": "a", "old": None, "new": "at work", "clicks": 1, "at": 1}
    assert change_of(first, second) == {
        "id": "b",
        "old": "at work",
        "new": "at lunch",
        "clicks": 2,
        "at": 2,
    }


def test_the_same_status_said_again_is_no_change() -> None:
    assert change_of(row_of(update(1), 1), row_of(update(2, "b"), 5)) is None


def test_invented_statuses_follow_from_the_seed() -> None:
    def made(seed: int) -> list[str]:
        return list(islice(iter(made_up_statuses(seed), None), 30))

    assert made(1) == made(1)
    assert made(1) != made(2)


USERS = st.text(st.sampled_from("aé用🂡"), min_size=1, max_size=3)


@given(st.dictionaries(USERS, st.integers(0, 3)), st.dictionaries(USERS, st.integers(1, 9)))
def test_a_join_has_each_user_of_either_table_once_in_order(
    times: dict[str, int], clicks: dict[str, int]
) -> None:
    statuses = {user: row_of(update(at), None) for user, at in times.items()}

    def by_bytes(users: Iterable[str]) -> list[str]:
        return sorted(users, key=str.encode)

    rows = joined(
        iter([(user, statuses[user]) for user in by_bytes(statuses)]),
        iter([(user, clicks[user]) for user in by_bytes(clicks)]),
    )
    assert list(rows) == [
        (user, statuses.get(user), clicks.get(user)) for user in by_bytes({*statuses, *clicks})
    ]
