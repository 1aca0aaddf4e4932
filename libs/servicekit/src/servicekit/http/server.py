"""Runs an ASGI application with uvicorn in a thread, so that the main thread is free for signals or other work."""

import asyncio
import socket
from collections.abc import Callable
from threading import Event, Thread
from typing import Any, Final

import structlog
import uvicorn
from anyio.to_thread import current_default_thread_limiter
from starlette.types import ASGIApp

from servicekit.http.connections import ConnectionLimits, HttpConnections
from servicekit.output import say
from servicekit.streams import Streams
from streamtable.errors import ConfigurationError

log = structlog.get_logger()
_BACKLOG: Final = 1024  # connections that the kernel may hold until they are accepted
# The event loop accepts this many in a row before it reads from them. If it were the limit of open connections, a flood
# would displace another client's connection before its request was read.
_ACCEPTED_AT_ONCE: Final = 16
_START_SECONDS: Final = 30.0


class HttpServer:
    """Serves on one address until stopped.

    Args:
        app: The application.
        host: The address to listen on.
        port: The port to listen on; 0: a free one.
        streams: The long-lived responses, ended by `stop`; None if the application has none.
        grace_seconds: The time that requests have to finish when `stop` is called.
        threads: The number of threads for handlers written as plain functions: few if the handlers compute, because
            they share one interpreter with the server, many if they wait.
        limits: The limits of connections; default `ConnectionLimits()`.
        dropped: Called with one of `servicekit.http.connections.REASONS` whenever a connection is dropped.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        *,
        streams: Streams | None = None,
        grace_seconds: int = 10,
        threads: int = 40,
        limits: ConnectionLimits | None = None,
        dropped: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._host = host
        self._port = port
        self._streams = streams
        self.connections = HttpConnections(limits or ConnectionLimits(), dropped)
        protocol: Any = self.connections.protocol  # uvicorn's types expect a class, but it only calls it
        config = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=_ACCEPTED_AT_ONCE,
            log_level="error",  # lower levels log its start, its end, and every invalid request
            timeout_keep_alive=self.connections.limits.idle_seconds,
            timeout_graceful_shutdown=grace_seconds,
        )
        self._threads = threads
        self._started = Event()
        self._server = _Uvicorn(config)
        self._server.on_started = self._on_started
        self._thread: Thread | None = None
        self._listener: socket.socket

    def start(self) -> str:
        """Listen. Prints, logs and returns the URL.

        Raises:
            ConfigurationError: The server cannot listen on the address.
        """
        listener = self._listener = _listen(self._host, self._port)
        port = listener.getsockname()[1]
        self._thread = Thread(target=self._server.run, args=([listener],), name="http", daemon=True)
        self._thread.start()
        if not self._started.wait(_START_SECONDS):
            raise ConfigurationError(f"the server on port {port} did not start within {_START_SECONDS:g} s")
        url = f"http://[{self._host}]:{port}" if ":" in self._host else f"http://{self._host}:{port}"
        say(f"listening on {url}")
        log.info("listening", url=url)
        return url

    def _on_started(self) -> None:
        current_default_thread_limiter().total_tokens = self._threads
        self._listener.listen(_BACKLOG)  # asyncio has set it to `_ACCEPTED_AT_ONCE`
        self.connections.start(asyncio.get_running_loop())
        self._started.set()

    def stop(self) -> None:
        """Stop accepting requests, end streams, finish accepted requests, and then return."""
        if self._streams is not None:
            self._streams.stop()
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is explicit because asyncio otherwise does not set TCP_NODELAY: without it, answers on a kept-alive
    # connection wait 40 ms for the caller's acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigurationError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return listener


class _Uvicorn(uvicorn.Server):
    """A uvicorn server that reports when it listens."""

    on_started: Callable[[], None]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.on_started()
