"""Bounds of what a connection sends ahead of the server: requests before their turn, and bodies in tiny chunks."""

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.flow_control import FlowControl

HEAD_BYTES: Final = 32 * 1024
"""The maximum size of the head of a request."""
CHUNKS_MAX: Final = 1024
"""The maximum number of chunks of one body: bodies have at most 64 KiB, lists of events 512 KiB."""


class BoundedFlow(FlowControl):
    """uvicorn's flow control, which reads on only if the parser has no request that waits for its turn.

    uvicorn reads once more for each request of a pipeline, up to 256 KiB, into a buffer of the parser without a limit: a
    connection that sent 2 GB of requests and read all responses made a service grow by 3.4 GB.

    Args:
        transport: The connection.
        parser: Its parser.
    """

    def __init__(self, transport: asyncio.Transport, parser: h11.Connection) -> None:
        super().__init__(transport)
        self._parser = parser

    def pause_reading(self) -> None:
        # uvicorn resumes the transport itself, too, and then considers it paused.
        self.read_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        waiting, _ = self._parser.trailing_data
        if self._parser.their_state is not h11.DONE or not waiting:
            super().resume_reading()


class BoundedParser(h11.Connection):
    """h11's parser, which refuses bodies of very many chunks, and counts the bytes of answers.

    It parses all that has arrived in one go: a read of 256 KiB can hold 44,000 chunks of one byte, 0.16 s of work in which
    the event loop serves no other connection.
    """

    answer_bytes = 0
    """The bytes of all answers of the connection that were given to its transport."""
    _chunks = 0

    def send(self, event: Any) -> Any:
        data: Any = super().send(event)
        self.answer_bytes += len(data or b"")
        return data

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Data):
            self._chunks += event.chunk_end
            if self._chunks > CHUNKS_MAX:
                raise h11.RemoteProtocolError("too many chunks", error_status_hint=413)
        elif isinstance(event, h11.Request):
            self._chunks = 0
        return event
