"""The pages of one or several processes: their metrics, and whether they live and are ready."""

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector


def listening(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 means any free one. Raises `OSError` if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


@contextmanager
def serving(
    server_socket: socket.socket,
    metrics: Callable[[], bytes],
    not_ready: Callable[[], str],
    own_host: Callable[[str | None, str], bool],
) -> Iterator[None]:
    """Serve `/metrics`, `/livez` and `/readyz` in the block, which ends with the socket closed.

    Args:
        server_socket: The listening socket.
        metrics: Returns the metrics as text.
        not_ready: Returns the reason why it is not ready; empty if it is.
        own_host: Whether a request may name this `Host`, which came to this address of the server; others are answered with 421.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, page = self.answer()
            with suppress(ConnectionError):  # the caller has not waited
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; charset=utf-8")
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

        def answer(self) -> tuple[int, bytes]:
            if not own_host(self.headers.get("Host"), str(self.connection.getsockname()[0])):
                return 421, b"The server does not answer to this host name.\n"
            match self.path.partition("?")[0]:
                case "/metrics":
                    return 200, metrics()
                case "/livez":
                    return 200, b"ok\n"
                case "/readyz":
                    reason = not_ready()
                    return (503, f"{reason}\n".encode()) if reason else (200, b"ok\n")
            return 404, b"The pages are /metrics, /livez and /readyz.\n"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
            pass

    server = ThreadingHTTPServer(("", 0), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = server_socket
    thread = Thread(target=server.serve_forever, args=(0.1,), name="pages", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Merged(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def merged(pages: Mapping[int, str]) -> bytes:
    """Return the metrics of several processes as one page, each sample with the label `process`."""
    families: dict[str, Metric] = {}
    for number, page in pages.items():
        for family in text_string_to_metric_families(page):
            into = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            into.samples += [
                sample._replace(labels={**sample.labels, "process": str(number)}) for sample in family.samples
            ]
    registry = CollectorRegistry()
    registry.register(_Merged(families.values()))
    return generate_latest(registry)
