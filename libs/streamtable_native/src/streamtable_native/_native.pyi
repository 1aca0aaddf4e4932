from collections.abc import Sequence
from types import NotImplementedType
from typing import TypeAlias

from confluent_kafka import Consumer, Producer

from streamtable.base.types import QueuedRecord

HeaderList: TypeAlias = list[tuple[str, bytes | None]]
Run: TypeAlias = tuple[
    str,  # topic
    int,  # partition
    list[bytes | None],  # keys
    list[bytes | None],  # values
    bytes,  # offsets, int64 of this machine
    bytes,  # timestamps in milliseconds, int64 of this machine
    bytes,  # kinds of timestamps, a byte each
    list[HeaderList | NotImplementedType | None]
    | None,  # None: no record has headers; NotImplemented: not UTF-8
    bool,  # whether each offset is above its predecessor
]
ErrorItem: TypeAlias = tuple[str | None, int, int, int, str]  # topic, partition, offset, code, text

def load(client_module: str) -> int: ...
def produce_rows(
    producer: Producer, topic: str, partition: int, rows: Sequence[tuple[bytes, bytes | None]]
) -> list[int]: ...
def produce_records(producer: Producer, records: Sequence[QueuedRecord]) -> int: ...

class Queue:
    def __init__(self, consumer: Consumer) -> None: ...
    def attach(self, topic: str, partition: int, /) -> None: ...
    def detach(self, topic: str, partition: int, /) -> None: ...
    def take(self, most: int, timeout_ms: int, /) -> tuple[list[Run], list[ErrorItem]]: ...
    def close(self) -> None: ...
