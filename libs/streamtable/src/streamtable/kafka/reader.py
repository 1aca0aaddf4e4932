"""Reads changelogs outside of any consumer group."""

from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, Message
from confluent_kafka import TopicPartition as Partition

from streamtable.base.types import RecordBatch, TopicPartition
from streamtable.errors import StreamtableError
from streamtable.kafka.client_log import ClientLog
from streamtable.kafka.errors import END, FORBIDDEN, PASSING, unreadable
from streamtable.kafka.fetch import Records


class KafkaTableReader:
    """`ports.TableReader` on librdkafka.

    The positions are kept here: behind the last record that was returned, and where the client reports the end of a
    partition, there: that is beyond markers and compacted records.
    """

    _failure: StreamtableError | None = None

    def __init__(self, consumer: Consumer, records: Records, log: ClientLog) -> None:
        self._consumer = consumer
        self._records = records
        self._log = log
        self._positions: dict[TopicPartition, int] = {}

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        new = {place: offset for place, offset in starts.items() if place not in self._positions}
        if len(new) != len(starts):
            raise AssertionError(f"already read: {sorted(starts.keys() - new.keys())}")
        self._records.attach(new)
        self._consumer.incremental_assign([Partition(*place, offset) for place, offset in new.items()])
        self._positions.update(new)

    def unassign(self, places: Iterable[TopicPartition]) -> None:
        known = [place for place in places if self._positions.pop(place, None) is not None]
        if known:
            self._records.detach(known)
            self._consumer.incremental_unassign([Partition(*place) for place in known])

    def poll(self, max_records: int, timeout: float) -> list[RecordBatch]:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        ends: dict[TopicPartition, int] = {}

        def on_error(message: Message) -> None:
            error = message.error()
            assert error is not None
            place = TopicPartition(message.topic() or "", message.partition() or 0)
            if error.code() in END:
                ends[place] = message.offset() or 0
            elif error.fatal() or error.code() not in PASSING:
                if place in self._positions:
                    # Raised by the next call: what came of other partitions with it would be lost otherwise.
                    if error.code() in FORBIDDEN:
                        self._failure = self._log.caller.lacks(error, "READ", place.topic)
                    else:
                        self._failure = unreadable(error, *place, message.offset())
            else:
                self._log.error(error)

        batches = self._records.take(max_records, timeout, on_error)
        # Drop prefetched records of partitions that were unassigned.
        batches = [batch for batch in batches if batch.place in self._positions]
        for batch in batches:
            self._positions[batch.place] = batch.last_offset + 1
        for place, end in ends.items():
            if place in self._positions:
                self._positions[place] = max(self._positions[place], end)
        return batches

    def position(self, place: TopicPartition) -> int:
        return self._positions[place]

    def close(self) -> None:
        self._records.close()
        self._consumer.close()
