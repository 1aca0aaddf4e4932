"""Reads a topic live, for those who keep no rows of it: from shortly before its end on."""

import time
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from threading import Event
from typing import Final

from streamtable.base.ports import ClusterClient, Log
from streamtable.base.types import RecordBatch, TopicPartition
from streamtable.errors import InputLost, RetryLater, TopicMismatch, TopicMissing

_POLL_RECORDS: Final = 10_000
_POLL_SECONDS: Final = 0.2
_CHECK_SECONDS: Final = 1.0  # how often the topic itself is looked at


class TopicFollower:
    """Reads all partitions that a topic has now. One thread.

    Args:
        log_: Kafka.
        cluster: A client of the same cluster.
        topic: The name of the topic.
        before: The number of offsets of each partition that are read again.
        partitions: The number of partitions that it had before; 0: not known.

    Attributes:
        info: The topic.
        starts: The first offset to read, by partition.
        ends: The end of the committed records, by partition.

    Raises:
        TopicMissing: There is no such topic.
        TopicMismatch: It has another number of partitions than before.
    """

    def __init__(
        self, log_: Log, cluster: ClusterClient, topic: str, before: int, partitions: int = 0
    ) -> None:
        self._log, self._cluster = log_, cluster
        info = cluster.topics([topic]).get(topic)
        if info is None:
            raise TopicMissing(f"there is no topic {topic!r}", topic=topic)
        if partitions not in {0, info.partitions}:
            raise TopicMismatch(
                f"topic {topic!r} had {partitions} partitions and has {info.partitions} now: start this process again",
                topic=topic,
            )
        self.info = info
        self._places = [TopicPartition(topic, number) for number in range(info.partitions)]
        ends, marks = cluster.stable_ends(self._places), cluster.watermarks(self._places)
        self.ends = [ends[place] for place in self._places]
        self.starts = [max(marks[place].low, ends[place] - before) for place in self._places]

    def batches(
        self, name: str, stop: Event
    ) -> Generator[tuple[Sequence[RecordBatch], list[int]], None, None]:
        """Yield committed records, and the next offset of each partition, until stopped.

        Args:
            name: The name on the consumer.
            stop: Ends it.

        Raises:
            InputLost: Records were deleted before they were read, or the topic was created again.
        """
        topic, topic_id = self.info.name, self.info.topic_id
        with closing(self._log.table_reader(name)) as reader:
            reader.assign(dict(zip(self._places, self.starts, strict=True)))
            checked_at = time.monotonic()
            while not stop.is_set():
                batches = reader.poll(_POLL_RECORDS, _POLL_SECONDS)
                yield batches, [reader.position(place) for place in self._places]
                if time.monotonic() - checked_at >= _CHECK_SECONDS:
                    checked_at = time.monotonic()
                    # Kafka's client need not notice: it continues at its offset in the new topic, or, while that one's
                    # leader epochs are lower than those it knows, it reads nothing.
                    with suppress(RetryLater):  # it is asked again
                        if self._cluster.topic_ids([topic]).get(topic, topic_id) != topic_id:
                            raise InputLost("the topic was deleted and created again", topic=topic)
