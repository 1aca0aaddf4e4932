"""Inputs that were deleted and created again since a group has read them: its committed offsets name the topics. No I/O.

The metadata of a committed offset has, in `seen`, the end of the partition and, for each input of which the group has
read something, a digest of the topic's name and one of its id.
"""

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

from streamtable_spark.errors import InputLost
from streamtable_spark.jobs.positions import Committed, Place

_DIGEST_BYTES: Final = 6
_DIGEST_CHARS: Final = 8


def refuse_recreated(
    group: str,
    committed: Mapping[Place, Committed | None],
    topic_ids: Mapping[str, str],
    advice: str,
) -> None:
    """Compare the topics that a group has read with those of today.

    An offset's own metadata count; those of the partition's other inputs only where there is no offset, since Kafka
    forgets the offsets of a topic that is deleted.

    Args:
        group: For messages.
        committed: Its offsets, of all partitions of its inputs.
        topic_ids: The ids of its inputs, by name.
        advice: What to do, for the message.

    Raises:
        InputLost: An input was deleted and created again.
    """
    seen = {place: topics_read(each.metadata) for place, each in committed.items() if each is not None}
    for topic, topic_id in sorted(topic_ids.items()):
        today = digest(topic_id)
        for place, topics in sorted(seen.items()):
            if place.topic != topic and Place(topic, place.partition) in seen:
                continue
            read = topics.get(digest(topic), today)
            if read != today:
                raise InputLost(
                    f"{topic} was deleted and created again: group {group!r} has read the topic whose id has the digest "
                    f"{read}, and the topic of today has the id {topic_id}, with the digest {today}. What its table was "
                    f"made of is gone. {advice}"
                )


def topics_read(metadata: str) -> dict[str, str]:
    """Return digests of topic ids by digest of the topic's name; none if a tool or an older version set the offset."""
    try:
        document = json.loads(metadata)
    except (json.JSONDecodeError, RecursionError):
        return {}
    match document:
        case {"seen": [int(), str(text)]} if len(text) % (2 * _DIGEST_CHARS) == 0:
            parts = [text[at : at + _DIGEST_CHARS] for at in range(0, len(text), _DIGEST_CHARS)]
            return dict(zip(parts[::2], parts[1::2], strict=True))
    return {}


def digest(text: str) -> str:
    """Return the digest of a topic's name or id that the metadata have."""
    return urlsafe_b64encode(blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()).decode()
