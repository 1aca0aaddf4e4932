"""The partitions of a range assignor, now and after losses, compared with the plain definition."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtable.base.range_assignor import order_of, range_after_losses, range_of


@given(st.integers(1, 9), st.integers(1, 40))
def test_the_ranges_of_all_members_are_all_partitions_once_in_order(members: int, partitions: int) -> None:
    ranges = [range_of(place, members, partitions) for place in range(members)]
    assert [number for each in ranges for number in each] == list(range(partitions))
    sizes = [len(each) for each in ranges]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1


@given(st.data(), st.integers(1, 6), st.integers(1, 20), st.integers(0, 3))
def test_after_losses_a_member_has_what_some_departure_of_others_would_give_it(
    data: st.DataObject, members: int, partitions: int, losses: int
) -> None:
    place = data.draw(st.integers(0, members - 1))
    everyone, found = range(members), set[int]()
    for gone in range(min(losses, members - 1) + 1):
        for leaving in combinations([each for each in everyone if each != place], gone):
            left = [each for each in everyone if each not in leaving]
            found |= set(range_of(left.index(place), len(left), partitions))
    assert range_after_losses(place, members, partitions, losses) == found


@pytest.mark.parametrize("members", [2, 3, 5, 8, 20])
def test_copies_for_one_loss_cost_about_one_more_copy_of_the_table(members: int) -> None:
    partitions = 120
    kept = [len(range_after_losses(place, members, partitions, 1)) for place in range(members)]
    assert sum(kept) <= 2.6 * partitions


def test_static_members_come_first_by_instance_id_and_the_others_by_member_id() -> None:
    members = [("m3", ""), ("m2", "b"), ("m1", ""), ("m4", "a")]
    assert sorted(members, key=lambda each: order_of(*each)) == [
        ("m4", "a"),
        ("m2", "b"),
        ("m1", ""),
        ("m3", ""),
    ]
