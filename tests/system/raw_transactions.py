"""Transactions made by Kafka's requests themselves: the way to the states that no client library leaves behind."""

import socket
import struct
import time
from contextlib import ExitStack
from typing import Self

from localkafka.waiting import Deadline
from streamtable.base.types import TopicPartition

_SECONDS_MAX = 60.0
_INIT_PRODUCER_ID, _ADD_OFFSETS, _END, _COMMIT_OFFSETS = 22, 25, 26, 28
_NOT_YET = {
    14,
    15,
    16,
    51,
}  # the coordinator loads, or is not known yet; the last transaction is being completed


class RawTransactions:
    """The producer of one transactional id, on a cluster of one broker.

    Args:
        address: `host:port` of the broker.
        transactional_id: The transactional id of the producer.
    """

    def __init__(self, address: str, transactional_id: str) -> None:
        host, port = address.split(":")
        self._id = _text(transactional_id)
        self._stack = ExitStack()
        self._socket = self._stack.enter_context(socket.create_connection((host, int(port)), _SECONDS_MAX))
        self._producer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def open(self) -> None:
        """Begin a new epoch, as a producer that starts does."""
        answer = self._patiently(_INIT_PRODUCER_ID, 1, self._id + struct.pack(">i", 600_000))
        self._producer = answer[6:16]  # its number, and the epoch

    def add_offsets(self, group: str) -> None:
        """Announce that the transaction has offsets of a group."""
        self._patiently(_ADD_OFFSETS, 0, self._id + self._producer + _text(group))

    def commit_offset(self, group: str, place: TopicPartition, offset: int) -> None:
        """Write an offset, which is pending until the transaction ends."""
        one = struct.pack(">i", 1)
        partition = one + struct.pack(">iq", place.partition, offset) + _text("")
        body = self._id + _text(group) + self._producer + one + _text(place.topic) + partition
        self._patiently(_COMMIT_OFFSETS, 0, body, at=-2)

    def end(self, *, commit: bool) -> None:
        self._patiently(_END, 0, self._id + self._producer + struct.pack(">?", commit))

    def _patiently(self, request: int, version: int, body: bytes, at: int = 4) -> bytes:
        """Ask until the answer has no error; its code is at this index, which is behind the throttle time in most."""
        deadline = Deadline(_SECONDS_MAX)
        while True:
            answer = self._ask(request, version, body)
            (error,) = struct.unpack_from(">h", answer[at:])
            if not error:
                return answer
            assert error in _NOT_YET, f"request {request} was refused with error code {error}"
            assert not deadline.passed(), f"request {request} is still refused with error code {error}"
            time.sleep(0.05)

    def _ask(self, request: int, version: int, body: bytes) -> bytes:
        message = struct.pack(">hhi", request, version, 1) + _text("raw") + body
        self._socket.sendall(struct.pack(">i", len(message)) + message)
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)[4:]

    def _exactly(self, count: int) -> bytes:
        data = self._socket.recv(count, socket.MSG_WAITALL)
        assert len(data) == count, "the broker has closed the connection"
        return data


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()
