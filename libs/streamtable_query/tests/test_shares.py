"""The partitions that the members of a shared view hold."""

from hypothesis import given
from hypothesis import strategies as st

from streamtable_query.shares import holders_of, share_of

MEMBERS, PARTITIONS, REPLICAS = st.integers(1, 12), st.integers(1, 60), st.integers(1, 3)


@given(MEMBERS, PARTITIONS, REPLICAS)
def test_each_partition_is_held_by_as_many_different_members_as_it_has_replicas(
    members: int, partitions: int, replicas: int
) -> None:
    for partition in range(partitions):
        holders = holders_of(partition, members, partitions, replicas)
        assert len(set(holders)) == len(holders) == min(replicas, members)
        assert set(holders) == {
            place for place in range(members) if partition in share_of(place, members, partitions, replicas)
        }


@given(MEMBERS, PARTITIONS, REPLICAS)
def test_a_member_holds_its_share_and_no_more(members: int, partitions: int, replicas: int) -> None:
    most = -(-partitions // members)
    for place in range(members):
        assert len(share_of(place, members, partitions, replicas)) <= most * replicas


@given(st.data(), st.integers(3, 12), PARTITIONS, st.integers(2, 3))
def test_when_one_member_leaves_or_joins_each_partition_keeps_a_holder_that_stays(
    data: st.DataObject, members: int, partitions: int, replicas: int
) -> None:
    everyone = list(range(members))
    left = everyone.copy()
    left.remove(data.draw(st.sampled_from(everyone)))
    for partition in range(partitions):
        before = {everyone[place] for place in holders_of(partition, members, partitions, replicas)}
        after = {left[place] for place in holders_of(partition, members - 1, partitions, replicas)}
        assert before & after
