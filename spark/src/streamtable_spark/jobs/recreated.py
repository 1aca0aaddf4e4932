"""Inputs that were deleted and created again since a group has read them: its committed offsets name the topics. No I/O."""

from collections.abc import Mapping

from streamtable.tables.seen import recreated
from streamtable.types import Committed
from streamtable_spark.errors import InputLost
from streamtable_spark.jobs.positions import Place


def refuse_recreated(
    group: str, committed: Mapping[Place, Committed | None], topic_ids: Mapping[str, str], advice: str
) -> None:
    """Compare the topics that a group has read with those of today.

    Args:
        group: For messages.
        committed: Its offsets, of all partitions of its inputs.
        topic_ids: The ids of its inputs, by name.
        advice: What to do, for the message.

    Raises:
        InputLost: An input was deleted and created again.
    """
    there = {place: each for place, each in committed.items() if each is not None}
    if found := recreated(there, topic_ids):
        raise InputLost(
            f"group {group!r}: {'; '.join(map(str, found.values()))}. What its table was made of is gone. {advice}"
        )
