"""Reading changelogs on the virtual Kafka: `ports.TableReader`.

A poll without records returns at once: in a real process a background thread waits, which takes no time of the main thread.
"""

from collections.abc import Callable, Iterable, Mapping

from streamtable.base.types import RecordBatch, TopicPartition
from streamtable.errors import InputLost, RetryLater
from streamtable_testing.faults import Wire
from streamtable_testing.topic import InMemoryMessage, Partition


class VirtualTableReader:
    """Reads committed records; its position passes markers and gaps at the end, like the real reader's.

    Args:
        partition: Returns a partition; None if it does not exist.
        wire: The connection to the broker.
    """

    def __init__(self, partition: Callable[[TopicPartition], Partition | None], wire: Wire) -> None:
        self._partition = partition
        self._wire = wire
        self._positions: dict[TopicPartition, int] = {}
        self._failure: InputLost | None = None

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        if again := starts.keys() & self._positions.keys():
            raise AssertionError(f"already read: {sorted(again)}")
        self._positions.update(starts)

    def unassign(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            self._positions.pop(place, None)

    def poll(self, max_records: int, timeout: float) -> list[RecordBatch]:
        del timeout
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        batches = []
        room = max_records
        for place in list(self._positions):
            records, position = self._read(place, room)
            self._positions[place] = position
            room -= len(records)
            if records:
                batches.append(RecordBatch(*place, records))
            if not room:
                break
        return batches

    def position(self, place: TopicPartition) -> int:
        return self._positions[place]

    def close(self) -> None:
        self._positions.clear()

    def _read(self, place: TopicPartition, room: int) -> tuple[list[InMemoryMessage], int]:
        start = self._positions[place]

        def read() -> tuple[list[InMemoryMessage], int]:
            partition = self._partition(place)
            return partition.read(start, room) if partition is not None else ([], start)

        try:
            return self._wire.ask("read", read, silent=RetryLater)
        except RetryLater:
            return [], start
        except InputLost as error:
            self._failure = error  # raised by the next call, so that records of other partitions are not lost
            return [], start
