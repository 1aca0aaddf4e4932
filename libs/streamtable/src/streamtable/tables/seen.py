"""The identity of a group's input topics at a commit, kept in the metadata of the committed offsets.

An offset says nothing about another topic of the same name, and the broker forgets the offsets of a topic that is
deleted, or that the group does not read for a while. So each committed offset names, for all inputs that the group has read
records of, the topic that it was.
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

import orjson

from streamtable.base.types import Committed, NextOffset, TopicPartition

TOPICS_MAX = 50
"""The maximum number of inputs recorded, the first by name: Kafka accepts 4 KB of metadata, and a topic takes 16 bytes."""

_DIGEST_BYTES = 6
_DIGEST_CHARS = 8


@dataclass(frozen=True, slots=True)
class SeenInputs:
    """The known ends and topic ids of the inputs at the time when an offset was committed.

    Attributes:
        end: The end of the partition whose offset this is; 0 if it was not known.
        ids: Digests of the topic ids, by digest of the topic's name.
    """

    end: int = 0
    ids: Mapping[str, str] | None = None

    @staticmethod
    def ids_of(
        topic_ids: Mapping[str, str],
        read: Mapping[str, NextOffset],
        before: Mapping[str, str] = MappingProxyType({}),
    ) -> Mapping[str, str]:
        """Return the ids to record, of inputs that were read from: an empty topic may be created again.

        Args:
            topic_ids: The ids of the inputs.
            read: The next offset of each input.
            before: The ids that were recorded when the task started. The ids of other topics stay: Kafka forgets the offsets of
                inputs that a version of the program does not read, and a later version may read them again.
        """
        topics = [topic for topic in sorted(topic_ids) if read.get(topic, 0) > 0]
        ids = {digest_of(topic): digest_of(topic_ids[topic]) for topic in topics}
        inputs = {digest_of(topic) for topic in topic_ids}
        ids |= {topic: each for topic, each in before.items() if topic not in inputs}
        return dict(list(ids.items())[:TOPICS_MAX])

    @staticmethod
    def recorded(committed: Iterable[Committed | None]) -> Mapping[str, str]:
        """Return the ids in the metadata of all of these offsets."""
        seen = [SeenInputs.decode(each.metadata) for each in committed if each is not None]
        return {
            topic: each for found in seen if found is not None for topic, each in (found.ids or {}).items()
        }

    def knows(self, topic: str) -> bool:
        """Return whether records of this topic had been read."""
        return self.ids is not None and digest_of(topic) in self.ids

    def is_other(self, topic: str, topic_id: str) -> bool:
        """Return whether the topic was deleted and created again."""
        now = digest_of(topic_id)
        return self.ids is not None and self.ids.get(digest_of(topic), now) != now

    def encode(self) -> list[int | str]:
        """Return one value of the JSON document in the metadata."""
        return [self.end, "".join(name + each for name, each in (self.ids or {}).items())]

    @staticmethod
    def decode(metadata: str) -> "SeenInputs | None":
        """Read the metadata of a committed offset; None if a tool has set it, or an older version without this."""
        with suppress(orjson.JSONDecodeError):
            match orjson.loads(metadata):
                case {"seen": seen}:
                    return SeenInputs.read(seen)
        return None

    @staticmethod
    def read(encoded: Any) -> "SeenInputs | None":
        """Return the value that `encode` has encoded; None for anything else."""
        match encoded:
            case [int(end), str(digests)] if len(digests) % (2 * _DIGEST_CHARS) == 0:
                parts = [digests[i : i + _DIGEST_CHARS] for i in range(0, len(digests), _DIGEST_CHARS)]
                return SeenInputs(end, dict(zip(parts[::2], parts[1::2], strict=True)))
        return None


@dataclass(frozen=True, slots=True)
class Recreated:
    """A topic that a group has read and that was deleted and created again since.

    Attributes:
        topic: Its name.
        digest_read: The digest of the id of the topic that the group has read; the id itself is not kept.
        topic_id: The id of the topic that has the name now.
    """

    topic: str
    digest_read: str
    topic_id: str

    def __str__(self) -> str:
        return (
            f"{self.topic} was deleted and created again: the group has read the topic whose id has the digest "
            f"{self.digest_read}, and the topic of today has the id {self.topic_id}, with the digest {digest_of(self.topic_id)}"
        )


def recreated(
    committed: Mapping[TopicPartition, Committed], topic_ids: Mapping[str, str]
) -> dict[str, Recreated]:
    """Return the topics, by name, that were created again since their offsets were committed.

    As in recovery, an offset's own metadata count; the other inputs' metadata only where there is no offset,
    since the broker forgets the offsets of a topic that is deleted.

    Args:
        committed: All offsets of the group.
        topic_ids: The topics of today.
    """
    seen = {place: SeenInputs.decode(each.metadata) for place, each in committed.items()}
    found = {}
    for topic, topic_id in topic_ids.items():
        for place, each in seen.items():
            own = TopicPartition(topic, place.partition)
            if each is not None and (place == own or own not in seen) and each.is_other(topic, topic_id):
                assert each.ids is not None, "it knows the topic"
                found[topic] = Recreated(topic, each.ids[digest_of(topic)], topic_id)
    return found


def digest_of(text: str) -> str:
    """Return eight characters that stand for a text."""
    return urlsafe_b64encode(blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()).decode()
