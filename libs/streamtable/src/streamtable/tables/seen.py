"""What a commit knew of its input topics, kept in the metadata of the committed offsets: which topics these were.

An offset says nothing about another topic of the same name, and the broker forgets the offsets of a topic that is
deleted. So each committed offset names, for all inputs of which the group has read something, the topic that it was.
"""

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import orjson

from streamtable.types import NextOffset

TOPICS_MAX = 100
"""Of more inputs the first by name are kept: Kafka accepts 4 KB of metadata, and each topic takes 16 bytes."""

_DIGEST_BYTES = 6
_DIGEST_CHARS = 8


@dataclass(frozen=True, slots=True)
class SeenInputs:
    """What was known of the inputs when an offset was committed.

    Attributes:
        end: The end of the partition whose offset this is; 0 if it was not known.
        ids: Digests of the topic ids, by digest of the topic's name.
    """

    end: int = 0
    ids: Mapping[str, str] | None = None

    @staticmethod
    def ids_of(topic_ids: Mapping[str, str], read: Mapping[str, NextOffset]) -> Mapping[str, str]:
        """The ids to keep, of inputs of which something has been read: an empty one may be made again."""
        topics = [topic for topic in sorted(topic_ids) if read.get(topic, 0) > 0]
        return {_digest(topic): _digest(topic_ids[topic]) for topic in topics[:TOPICS_MAX]}

    def knows(self, topic: str) -> bool:
        """Something of this topic had been read."""
        return self.ids is not None and _digest(topic) in self.ids

    def is_other(self, topic: str, topic_id: str) -> bool:
        """The topic was another one than it is now: it was deleted and created again."""
        return self.ids is not None and self.ids.get(_digest(topic), _digest(topic_id)) != _digest(topic_id)

    def encode(self) -> list[int | str]:
        """One value of the JSON document that the metadata is."""
        return [self.end, "".join(name + each for name, each in (self.ids or {}).items())]

    @staticmethod
    def decode(metadata: str) -> "SeenInputs | None":
        """Read the metadata of a committed offset; None if a tool has set it, or an older version without this."""
        try:
            match orjson.loads(metadata):
                case {"seen": seen}:
                    return SeenInputs.read(seen)
        except orjson.JSONDecodeError:
            return None
        return None

    @staticmethod
    def read(encoded: Any) -> "SeenInputs | None":
        """What `encode` made; None for anything else."""
        match encoded:
            case [int(end), str(digests)] if len(digests) % (2 * _DIGEST_CHARS) == 0:
                parts = [digests[i : i + _DIGEST_CHARS] for i in range(0, len(digests), _DIGEST_CHARS)]
                return SeenInputs(end, dict(zip(parts[::2], parts[1::2], strict=True)))
        return None


def _digest(text: str) -> str:
    return urlsafe_b64encode(blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()).decode()
