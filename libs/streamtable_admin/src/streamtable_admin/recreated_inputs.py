"""Inputs that were deleted and created again: the offsets that a group has committed mean nothing in the new topic."""

from collections.abc import Collection, Iterable, Mapping

from streamtable.base.types import Committed, TopicPartition
from streamtable.tables.seen import Recreated, SeenInputs, recreated
from streamtable_admin.cluster import Cluster
from streamtable_admin.errors import Refused


def recreated_inputs(cluster: Cluster, committed: Mapping[TopicPartition, Committed]) -> dict[str, Recreated]:
    """Return the inputs of a group that were deleted and created again since it committed these offsets."""
    seen = [found for each in committed.values() if (found := SeenInputs.decode(each.metadata))]
    # Asked of all topics, as the broker forgets the offsets of one that is deleted: only its name's digest is known.
    read = [topic for topic in cluster.admin.topic_partitions() if any(each.knows(topic) for each in seen)]
    return recreated(committed, cluster.admin.topic_ids(read)) if read else {}


def accepted_places(
    cluster: Cluster, group: str, committed: Mapping[TopicPartition, Committed], *, accepted: bool
) -> set[TopicPartition]:
    """Return all partitions of the inputs that were created again, if the operator accepts that there are such.

    Raises:
        Refused: There are such inputs, and it was not accepted.
    """
    found = recreated_inputs(cluster, committed)
    if not found:
        return set()
    if not accepted:
        raise Refused(
            f"group {group!r}: {'; '.join(map(str, found.values()))}. Its old offsets mean nothing in the new topic. Decide "
            "where the group continues there, and give --accept-recreated"
        )
    partitions = cluster.admin.topic_partitions()
    return {TopicPartition(topic, number) for topic in found for number in range(partitions[topic])}


def refuse_left_out(
    group: str, recreated: Collection[TopicPartition], reset: Iterable[TopicPartition]
) -> None:
    """Refuse to reset offsets of the group without those inputs that were created again.

    The broker has forgotten the offsets of such an input, and the offsets that are reset lose the metadata that tell:
    the group would take it for a new input.

    Raises:
        Refused: Nothing was changed.
    """
    if left := sorted(set(recreated) - set(reset)):
        raise Refused(
            f"group {group!r}: {left[0].topic} was deleted and created again, so all of its partitions have to be set, and "
            f"{left[0]} is not: leave --topic out, or add --topic {left[0].topic}"
        )
