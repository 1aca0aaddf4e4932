"""Runs an ASGI application with uvicorn in a thread, so that the main thread is free for signals or other work."""

import socket
from collections.abc import Callable
from threading import Event, Thread
from typing import Final

import structlog
import uvicorn
from starlette.types import ASGIApp

from servicekit.process import say
from servicekit.streams import Streams
from streamtable.errors import ConfigurationError

log = structlog.get_logger()
KEEP_ALIVE_SECONDS: Final = 5
HEAD_BYTES: Final = 16 * 1024
_START_SECONDS: Final = 30.0


class HttpServer:
    """Serves on one address until stopped.

    uvicorn has no limit on the time that a request's head may take, and its limit on connections counts idle ones:
    on an open network a proxy with such limits belongs in front.

    Args:
        app: the application.
        host: to listen on.
        port: to listen on; 0: a free one.
        streams: long-lived answers, ended by `stop`; None if the application has none.
        grace_seconds: for requests that are being worked on when `stop` is called.
    """

    def __init__(
        self, app: ASGIApp, host: str, port: int, *, streams: Streams | None = None, grace_seconds: int = 10
    ) -> None:
        self._host = host
        self._port = port
        self._streams = streams
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=grace_seconds,
            h11_max_incomplete_event_size=HEAD_BYTES,
        )
        self._started = Event()
        self._server = _Uvicorn(config, self._started.set)
        self._thread: Thread | None = None

    def start(self) -> str:
        """Listen. Prints, logs and returns the URL.

        Raises:
            ConfigurationError: the address cannot be listened on.
        """
        listener = _listen(self._host, self._port)
        port = listener.getsockname()[1]
        self._thread = Thread(target=self._server.run, args=([listener],), name="http", daemon=True)
        self._thread.start()
        if not self._started.wait(_START_SECONDS):
            raise ConfigurationError(f"the server on port {port} did not start within {_START_SECONDS:g} s")
        url = f"http://[{self._host}]:{port}" if ":" in self._host else f"http://{self._host}:{port}"
        say(f"listening on {url}")
        log.info("listening", url=url)
        return url

    def stop(self) -> None:
        """Accept nothing more, end streams, finish what was accepted, and return when that is done."""
        if self._streams is not None:
            self._streams.stop()
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio sets TCP_NODELAY only where it is: without it, answers on a kept connection
    # wait 40 ms for the caller's acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ConfigurationError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return listener


class _Uvicorn(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()
