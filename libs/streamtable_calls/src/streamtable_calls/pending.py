"""A pending call as a row: its request, its attempts, and in the end its answer or its error."""

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple

from streamtable import Codec, Decoded, decode_each
from streamtable.errors import DeserializationError
from streamtable.handlers.timers import NEVER_MS

_HEAD = Struct(">BIQQI")
_TIME = Struct(">Q")
ERROR_CHARACTERS_MAX = 500


class CallState(IntEnum):
    """The progress of a call."""

    WAITING = 0
    ANSWERED = 1
    FAILED = 2


class PendingCall(NamedTuple):
    """A pending call.

    Attributes:
        request: The encoded request.
        made_ms: The event time of the record that has made it, in milliseconds since 1970.
        attempts: The number of attempts so far.
        next_ms: The time of the next attempt, in milliseconds since 1970; 0: at once.
        answer: The encoded result.
        error: The class and the message of the last error.
    """

    request: bytes
    made_ms: int
    state: CallState = CallState.WAITING
    attempts: int = 0
    next_ms: int = 0
    answer: bytes = b""
    error: str = ""

    def encode(self) -> bytes:
        head = _HEAD.pack(self.state, self.attempts, self.made_ms, self.next_ms, len(self.request))
        # An error's text may hold anything, also halves of surrogate pairs.
        error = self.error[:ERROR_CHARACTERS_MAX].encode("ascii", errors="backslashreplace")[
            :ERROR_CHARACTERS_MAX
        ]
        tail = self.answer if self.state is CallState.ANSWERED else error
        return b"%b%b%b" % (head, self.request, tail)

    @staticmethod
    def decode(data: bytes) -> "PendingCall":
        """Return the pending call of these bytes. Raises `DeserializationError`."""
        try:
            state, attempts, made_ms, next_ms, length = _HEAD.unpack_from(data)
            request, tail = data[_HEAD.size : _HEAD.size + length], data[_HEAD.size + length :]
            if len(request) < length:
                raise ValueError("it is cut off")
            answered = CallState(state) is CallState.ANSWERED
            return PendingCall(
                request, made_ms, CallState(state), attempts, next_ms,
                tail if answered else b"", "" if answered else tail.decode(),
            )  # fmt: skip
        except Exception as error:
            raise DeserializationError(f"the row is no pending call: {error}") from error

    def row(self, when_ms: int = NEVER_MS) -> bytes:
        """Return the row of a timer with this call as its payload.

        Args:
            when_ms: When the handler is called. By default not before the row is written again.
        """
        return _TIME.pack(when_ms) + self.encode()


class PendingCallCodec:
    """The codec of the pending calls of one declared call. Its text is recorded, so other codecs are refused later.

    Args:
        request: The codec of the requests.
        response: The codec of the results.
    """

    def __init__(self, request: Codec[Any], response: Codec[Any]) -> None:
        self._text = f"call of {request!r} answered by {response!r}"

    def encode(self, value: PendingCall) -> bytes:
        return value.encode()

    def decode(self, data: bytes) -> PendingCall:
        return PendingCall.decode(data)

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[PendingCall]:
        return decode_each(self.decode, data)

    def __repr__(self) -> str:
        return self._text
