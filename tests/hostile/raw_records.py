"""Records as no client would write them: record batches put together by hand and sent over a plain socket."""

import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from confluent_kafka.admin import AdminClient

from exactavro import Schema, encode, make_writer
from localkafka.waiting import Deadline

_write_long = make_writer(Schema.load("long"))  # Kafka's varints are Avro's
_POLYNOMIAL = 0x82F63B78
_PRODUCE, _VERSION = 0, 7
_NOT_YET = {3, 5, 6}  # the topic is new: no such partition, no leader, not this one


@dataclass(frozen=True)
class RawRecord:
    """One record; nothing in it is checked.

    Attributes:
        key: None for none.
        value: None for none.
        headers: names as bytes, which Kafka says are UTF-8.
        timestamp_ms: -1: none.
    """

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[bytes, bytes | None]] = ()
    timestamp_ms: int = -1


class RawProducer:
    """Appends single records to a partition, over one connection to its leader."""

    def __init__(self, bootstrap_servers: str, topic: str, partition: int = 0) -> None:
        self._topic, self._partition = topic, partition
        admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        known = admin.list_topics(topic, timeout=10)
        leader = known.brokers[known.topics[topic].partitions[partition].leader]
        self._connection = socket.create_connection((str(leader.host), leader.port), timeout=10)

    def send(self, record: RawRecord) -> int:
        """Append the record and return its offset. Raises `AssertionError` if the broker refuses it."""
        deadline = Deadline(10)
        while (answer := self._ask(record))[0] in _NOT_YET:
            assert not deadline.passed(), f"the partition has no leader: error {answer[0]}"
            time.sleep(0.02)
        error, offset = answer
        assert error == 0, f"the broker refuses the record: error {error}"
        return offset

    def _ask(self, record: RawRecord) -> tuple[int, int]:
        batch = _batch(record)
        body = b"".join(
            (
                struct.pack(">hhi", -1, -1, 10_000),  # no transaction; all in-sync replicas; milliseconds
                struct.pack(">i", 1) + _string(self._topic),
                struct.pack(">ii", 1, self._partition) + struct.pack(">i", len(batch)) + batch,
            )
        )
        request = struct.pack(">hhi", _PRODUCE, _VERSION, 1) + _string("raw") + body
        self._connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", _exactly(self._connection, 4))
        answer = _exactly(self._connection, size)
        place = (
            4 + 4 + 2 + len(self._topic.encode()) + 4 + 4
        )  # behind the number of partitions and the partition
        error, offset = struct.unpack_from(">hq", answer, place)
        return int(error), int(offset)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        assert part, "the broker has closed the connection"
        found += part
    return found


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _varint(number: int) -> bytes:
    return encode(_write_long, number)


def _bytes(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _batch(record: RawRecord) -> bytes:
    body = b"".join(
        (
            b"\x00" + _varint(0) + _varint(0),  # attributes, and no distance to the batch's time and offset
            _bytes(record.key) + _bytes(record.value) + _varint(len(record.headers)),
            *(_bytes(name) + _bytes(value) for name, value in record.headers),
        )
    )
    body = _varint(len(body)) + body
    # Attributes, last offset, both times, producer, epoch, sequence, number of records.
    body = struct.pack(">hiqqqhii", 0, 0, record.timestamp_ms, record.timestamp_ms, -1, -1, -1, 1) + body
    magic_and_sum = struct.pack(">bI", 2, _crc32c(body))
    return struct.pack(">qii", 0, 4 + len(magic_and_sum) + len(body), -1) + magic_and_sum + body


def _crc_of_byte(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_CRC_OF_BYTES = [_crc_of_byte(byte) for byte in range(256)]


def _crc32c(data: bytes) -> int:
    rest = 0xFFFFFFFF
    for byte in data:
        rest = (rest >> 8) ^ _CRC_OF_BYTES[(rest ^ byte) & 0xFF]
    return rest ^ 0xFFFFFFFF
