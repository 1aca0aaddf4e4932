"""HTTP requests as bytes, and what must be true of the answer to every one of them."""

import json
import re
from http.client import HTTPConnection
from typing import Final

from tests.hostile.rest_world import Service

EVIL: Final = b"evil"
"""A text in bad requests that no response may repeat."""
HOST: Final = b"Host: localhost\r\n"
CLOSE: Final = b"Connection: close\r\n"
JSON: Final = b"Content-Type: application/json\r\n"
SILENCE_SECONDS: Final = 1.5
STATUS_LINE: Final = re.compile(rb"HTTP/1\.1 (\d{3}) ")


def get(path: bytes, headers: bytes = b"", method: bytes = b"GET") -> bytes:
    return method + b" " + path + b" HTTP/1.1\r\n" + HOST + headers + CLOSE + b"\r\n"


def post(body: bytes, headers: bytes = JSON, path: bytes = b"/clicks") -> bytes:
    length = f"Content-Length: {len(body)}\r\n".encode()
    return b"POST " + path + b" HTTP/1.1\r\n" + HOST + headers + length + CLOSE + b"\r\n" + body


def judge(service: Service, request: bytes, statuses: set[int], honest: str) -> list[bytes]:
    """Send a request and check all that is true of every answer, which is over after a silence.

    Returns:
        The answers' heads.
    """
    answer = service.raw(request, SILENCE_SECONDS)
    found = [int(status) for status in STATUS_LINE.findall(answer)]
    assert found, "there was no answer"
    assert found[0] in statuses, answer[:500]
    head, _, body = answer.partition(b"\r\n\r\n")
    lowered = answer.lower()
    assert EVIL not in lowered
    assert b"traceback" not in lowered
    assert b"python" not in lowered
    assert b"\nserver:" not in lowered
    if found[0] >= 400 and not request.startswith(b"HEAD"):
        assert b"content-type: application/problem+json" in head.lower()
        document, _ = json.JSONDecoder().raw_decode(body.decode())
        assert document["status"] == found[0]
    served(service, honest)
    return STATUS_LINE.findall(answer)


def served(service: Service, path: str) -> None:
    connection = HTTPConnection(*service.address, timeout=60)
    connection.request("GET", path)
    assert connection.getresponse().status == 200
    connection.close()
    service.check_sound()
