"""Pending rows: a call with its request, its attempts, and in the end its answer or its error; or a record that is retried."""

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple

from streamtable import Context, Decoded, decode_each
from streamtable.errors import DeserializationError
from streamtable.graph.companion import CALLS
from streamtable.handlers.state_table import StateRows
from streamtable.handlers.timers import NEVER_MS, PendingTimer, payload_of

_HEAD = Struct(">BIQQQI")
_TIME = Struct(">Q")
ERROR_CHARACTERS_MAX = 500
_LARGE_BYTES = 50_000
OWN = b"\0"
"""The beginning of the keys of rows that are not of any edge: no edge has an empty name."""
NUMBERS = PendingTimer("", b"", "").encode()
"""The row with the last number that was given."""


class CallState(IntEnum):
    """The progress of a call."""

    WAITING = 0
    ANSWERED = 1
    FAILED = 2


class PendingCall(NamedTuple):
    """A pending call.

    Attributes:
        request: The encoded request.
        made_ms: The event time of the record that has made it, in milliseconds since 1970; 0: it has none.
        since_ms: The end of its first attempt, in milliseconds since 1970; 0: there was none.
        attempts: The number of attempts so far.
        next_ms: The time of the next attempt, in milliseconds since 1970; 0: at once.
        answer: The encoded result.
        error: The class and the message of the last error.
    """

    request: bytes
    made_ms: int
    since_ms: int = 0
    state: CallState = CallState.WAITING
    attempts: int = 0
    next_ms: int = 0
    answer: bytes = b""
    error: str = ""

    def encode(self) -> bytes:
        head = _HEAD.pack(
            self.state, self.attempts, self.made_ms, self.since_ms, self.next_ms, len(self.request)
        )
        # An error's text may hold anything, also halves of surrogate pairs.
        error = self.error[:ERROR_CHARACTERS_MAX].encode("ascii", errors="backslashreplace")
        tail = self.answer if self.state is CallState.ANSWERED else error[:ERROR_CHARACTERS_MAX]
        return b"%b%b%b" % (head, self.request, tail)

    @staticmethod
    def decode(data: bytes) -> "PendingCall":
        """Return the pending call of these bytes. Raises `DeserializationError`."""
        try:
            state, attempts, made_ms, since_ms, next_ms, length = _HEAD.unpack_from(data)
            request, tail = data[_HEAD.size : _HEAD.size + length], data[_HEAD.size + length :]
            if len(request) < length:
                raise ValueError("it is cut off")
            found = CallState(state)
            answer, reason = (tail, "") if found is CallState.ANSWERED else (b"", tail.decode())
            return PendingCall(request, made_ms, since_ms, found, attempts, next_ms, answer, reason)
        except Exception as error:
            raise DeserializationError(f"the row is no pending call: {error}") from error

    def row(self, when_ms: int = NEVER_MS) -> bytes:
        """Return the row of a timer with this call as its payload.

        Args:
            when_ms: When the handler is called. By default not before the row is written again.
        """
        return _TIME.pack(when_ms) + self.encode()


class PendingCallCodec:
    """The codec of the pending rows of one edge.

    Args:
        text: The meaning of the requests and answers. It is recorded, so another meaning is refused later.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def encode(self, value: PendingCall) -> bytes:
        return value.encode()

    def decode(self, data: bytes) -> PendingCall:
        return PendingCall.decode(data)

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[PendingCall]:
        return decode_each(self.decode, data)

    def __repr__(self) -> str:
        return self._text


def next_number(rows: StateRows[bytes], now_ms: int) -> int:
    """Return a number greater than those that were given before among these rows.

    The first one is the time in microseconds: it is greater, too, than those of rows that a reset has emptied.

    Args:
        rows: The rows of a partition.
        now_ms: The time, in milliseconds since 1970.
    """
    last = rows.get(NUMBERS)
    number = now_ms * 1000 if last is None else _TIME.unpack(payload_of(last))[0] + 1
    rows.put(NUMBERS, _TIME.pack(NEVER_MS) + _TIME.pack(number))
    return int(number)


def pending_row(ctx: Context[Any, Any], request: bytes) -> PendingCall:
    """Return a new pending row, with the event time of the record that is being handled. 0 means that it has none, so an event at 0 gets 1.

    A row that fits now fits with an error, too: a large one gets room for its text.
    """
    made_ms = ctx.event_time_ms
    # The handler of a call that has no time makes one without a time: it sees 0.
    if made_ms == 0 and (ctx.timestamp_ms or not ctx.topic.endswith(f"-{CALLS}")):
        made_ms = 1
    room = " " * ERROR_CHARACTERS_MAX if len(request) > _LARGE_BYTES else ""
    return PendingCall(request, max(made_ms, 0), error=room)
