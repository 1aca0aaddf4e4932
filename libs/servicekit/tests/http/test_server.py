import socket
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from starlette.types import ASGIApp
from structlog.testing import capture_logs

from localkafka.waiting import wait_until
from servicekit.http.app import build_app
from servicekit.http.server import HttpServer
from streamtable.errors import ConfigurationError


class Work:
    """A handler that signals when it was entered and returns when the test allows it."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.release = threading.Event()

    def app(self) -> ASGIApp:
        app = build_app("test", "1", ready=lambda: True, metrics=lambda: b"")

        @app.get("/job")
        def work() -> str:
            self.entered.set()
            assert self.release.wait(60)
            return "done"

        return app


@pytest.fixture
def work() -> Iterator[Work]:
    work = Work()
    yield work
    work.release.set()


def in_thread(function: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return True
    return False


def test_port_0_is_a_free_port_that_is_printed_and_logged(
    work: Work, capsys: pytest.CaptureFixture[str]
) -> None:
    server = HttpServer(work.app(), "127.0.0.1", 0)
    with capture_logs() as logged:
        url = server.start()
    assert logged == [{"event": "listening", "url": url, "log_level": "info"}]
    assert capsys.readouterr().out == f"listening on {url}\n"
    assert httpx.get(f"{url}/livez").status_code == 200
    server.stop()


def test_responses_on_a_kept_alive_connection_are_not_delayed_by_nagles_algorithm(work: Work) -> None:
    server = HttpServer(work.app(), "127.0.0.1", 0)
    with httpx.Client(base_url=server.start(), timeout=60) as client:
        client.get("/livez")

        def several_are_quick() -> bool:
            seconds = []
            for _ in range(20):
                begun = time.monotonic()
                client.get("/livez")
                seconds.append(time.monotonic() - begun)
            return sorted(seconds)[5] < 0.03

        wait_until(
            several_are_quick
        )  # a busy machine may be slow for a while, an acknowledgement is late each time
    server.stop()


def test_a_port_in_use_is_a_configuration_error(work: Work) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"cannot listen on 127.0.0.1:{port}"):
            HttpServer(work.app(), "127.0.0.1", port).start()


def test_stopping_finishes_accepted_requests_and_accepts_no_more(work: Work) -> None:
    server = HttpServer(work.app(), "127.0.0.1", 0)
    url = server.start()
    answers: list[httpx.Response] = []
    asking = in_thread(lambda: answers.append(httpx.get(f"{url}/job", timeout=60)))
    assert work.entered.wait(60)
    stopping = in_thread(server.stop)
    wait_until(lambda: refuses(httpx.URL(url).port or 0))
    work.release.set()
    asking.join()
    stopping.join()
    assert [answer.json() for answer in answers] == ["done"]


def raw(url: str, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", httpx.URL(url).port or 0), timeout=60) as connection:
        connection.sendall(request)
        return connection.recv(65536)


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 3\r\nContent-Length: 5\r\n",
        b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 1e3\r\n",
        b"Transfer-Encoding: gzip\r\n",
        b"bad header\r\n",
    ],
)
def test_requests_with_contradictory_lengths_do_not_reach_a_handler(work: Work, headers: bytes) -> None:
    server = HttpServer(work.app(), "127.0.0.1", 0)
    url = server.start()
    request = b"POST /livez HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n0\r\n\r\n"
    status = raw(url, request).split(b" ")[1]
    assert status in {b"400", b"413", b"415", b"501"}
    server.stop()
