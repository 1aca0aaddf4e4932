"""Confluent's framing, with ids from a file and from a registry that answers, lies, is slow or is gone."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from streamtable import Avro, Plain
from streamtable.errors import ConfigurationError, DeserializationError, RetryLater
from streamtable_codecs import Apicurio, Confluent, FileRegistry, HttpRegistry
from streamtable_codecs.schemas import Definition

OLD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
NEW = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "int", "default": 0}],
}
LOOP = {"type": "record", "name": "L", "fields": [{"name": "l", "type": ["null", "L"]}]}


DOUBLING = [
    {"type": "record", "name": "D0", "fields": [{"name": "a", "type": "int"}]},
    *(
        {
            "type": "record",
            "name": f"D{n + 1}",
            "fields": [{"name": "a", "type": f"D{n}"}, {"name": "b", "type": f"D{n}"}],
        }
        for n in range(30)
    ),
]


class Server:
    """A registry of the tests: `answers` by (method, path), and a count of the requests."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], tuple[int, Any]] = {}
        self.requests: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                server.requests.append(self.path)
                missing = (404, {"error_code": 40403, "message": "not found"})
                status, content = server.answers.get((self.command, self.path), missing)
                body = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = answer  # noqa: N815 - names of the standard library

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def has(self, number: int, schema: Any, **more: Any) -> None:
        self.answers["GET", f"/schemas/ids/{number}"] = 200, {"schema": json.dumps(schema), **more}

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


class Clock:
    """A clock that stands still until it is advanced, and pauses that take no time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def registry(server: Server, clock: Clock) -> Iterator[HttpRegistry]:
    registry = HttpRegistry(server.url, clock=lambda: clock.now, wait=clock.pauses.append)
    yield registry
    registry.close()


def message(number: int, body: str) -> bytes:
    return b"\x00" + number.to_bytes(4, "big") + bytes.fromhex(body)


def test_a_schema_is_asked_for_once_and_resolved(server: Server, registry: HttpRegistry) -> None:
    server.has(7, OLD)
    codec = Avro(NEW, Confluent(registry))
    assert codec.decode_many([message(7, "0a")] * 100).values == [{"a": 5, "b": 0}] * 100
    assert Avro(NEW, Confluent(registry)).decode(message(7, "0a")) == {"a": 5, "b": 0}
    assert server.requests == ["/schemas/ids/7"]


def test_writing_looks_the_id_up_once_under_its_subject(server: Server, registry: HttpRegistry) -> None:
    server.answers["POST", "/subjects/a%2Fb-value"] = 200, {"subject": "a/b-value", "id": 258, "version": 1}
    codec = Avro(OLD, Confluent(registry, "a/b-value"))
    assert [codec.encode({"a": 5}).hex() for _ in range(3)] == ["00000001020a"] * 3
    assert server.requests == ["/subjects/a%2Fb-value"]


def test_writing_an_unregistered_schema_says_where_to_register_it(registry: HttpRegistry) -> None:
    with pytest.raises(ConfigurationError, match="not registered under 'clicks-value'"):
        Avro(OLD, Confluent(registry, "clicks-value")).encode({"a": 1})
    with pytest.raises(ConfigurationError, match="name the subject"):
        Avro(OLD, Confluent(registry)).encode({"a": 1})


@pytest.mark.parametrize("status", [404, 405])
def test_a_registry_that_cannot_test_by_the_rule_of_a_subject_compares_with_its_latest_version(
    server: Server, registry: HttpRegistry, status: int
) -> None:
    path, definition = "/compatibility/subjects/s/versions", Definition("AVRO", json.dumps(OLD), "R")
    server.answers["POST", f"{path}/latest?verbose=true"] = 200, {"is_compatible": False, "messages": ["b"]}
    server.answers["POST", f"{path}?verbose=true"] = 503, {}
    with pytest.raises(RetryLater, match="status 503"):
        registry.compatible("s", definition)
    server.answers["POST", f"{path}?verbose=true"] = status, {"detail": "Not Found"}
    assert registry.compatible("s", definition) == "b"


def test_an_unknown_id_is_poison_and_asked_for_again_only_after_a_while(
    server: Server, registry: HttpRegistry, clock: Clock
) -> None:
    codec = Avro(OLD, Confluent(registry))
    assert len(codec.decode_many([message(9, "02")] * 50).poison) == 50
    assert len(server.requests) == 1
    server.has(9, OLD)
    clock.now = 59.0
    with pytest.raises(DeserializationError, match="schema id 9"):
        codec.decode(message(9, "02"))
    clock.now = 61.0
    assert codec.decode(message(9, "02")) == {"a": 1}


@pytest.mark.parametrize("number", [0, 2**31, 2**32 - 1])
def test_absurd_ids_are_poison(registry: HttpRegistry, number: int) -> None:
    with pytest.raises(DeserializationError, match=f"schema id {number}"):
        Avro("long", Confluent(registry)).decode(message(number, "02"))


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x00\x00\x00", b"\x01\x00\x00\x00\x07\x02"])
def test_a_wrong_magic_is_poison_without_a_question(
    server: Server, registry: HttpRegistry, data: bytes
) -> None:
    begins = data[:5].hex() or "nothing"
    with pytest.raises(DeserializationError, match=f"not Confluent's format: begins with {begins}"):
        Avro("long", Confluent(registry)).decode(data)
    assert server.requests == []


@pytest.mark.parametrize(
    ("status", "content"),
    [
        (500, {"error_code": 50001}),
        (503, b"busy"),
        (404, b"<html>no such page</html>"),
        (404, {"message": "another service's"}),
        (200, b"<html>a proxy's login</html>"),
        (200, ["a list"]),
        (200, {}),
        (401, {"error_code": 40101}),
    ],
)
def test_a_registry_that_fails_is_asked_again_and_no_record_becomes_poison(
    server: Server, registry: HttpRegistry, clock: Clock, status: int, content: Any
) -> None:
    server.answers["GET", "/schemas/ids/7"] = status, content
    codec = Avro(OLD, Confluent(registry))
    with pytest.raises(RetryLater, match="does not answer"):
        codec.decode_many([message(7, "02")])
    assert clock.pauses == [0.1, 0.2]
    server.has(7, OLD)
    assert codec.decode(message(7, "02")) == {"a": 1}


def test_a_registry_that_is_not_there_means_retry_later(clock: Clock) -> None:
    registry = HttpRegistry("http://127.0.0.1:1", timeout=0.5, attempts=2, wait=clock.pauses.append)
    with pytest.raises(RetryLater, match="ConnectError"):
        Avro("long", Confluent(registry)).decode(message(7, "02"))
    assert clock.pauses == [0.1]
    registry.close()


@pytest.mark.parametrize(
    ("schema", "more", "reason"),
    [
        (LOOP, {}, "recursive"),
        ({"type": "what"}, {}, "what"),
        (OLD, {"schemaType": "PROTOBUF"}, "of type PROTOBUF, not Avro"),
        (OLD, {"references": [{"name": "X"}]}, "a reference that is none"),
        (OLD, {"references": "X"}, "a reference that is none"),
        (DOUBLING, {}, "types in one another"),
        ("string", {}, "string cannot be read as record R"),
    ],
)
def test_a_registered_schema_that_cannot_be_used_makes_its_records_poison(
    server: Server, registry: HttpRegistry, schema: Any, more: dict[str, Any], reason: str
) -> None:
    server.has(7, schema, **more)
    codec = Avro(OLD, Confluent(registry))
    decoded = codec.decode_many([message(7, "02")] * 3)
    assert len(decoded.poison) == 3
    assert reason in decoded.poison[2].message
    assert len(server.requests) == 1 + ("PROTOBUF" in more.values())  # whose descriptor is asked for too


def test_the_right_id_before_another_schemas_bytes_is_poison(server: Server, registry: HttpRegistry) -> None:
    server.has(7, OLD)
    with pytest.raises(DeserializationError, match="end of the message"):
        Avro(OLD, Confluent(registry)).decode(message(7, "0a68656c6c6f"))


@pytest.mark.parametrize("settings", [{"url": "localhost:8081"}, {"attempts": 0}, {"timeout": 0}])
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="registry"):
        HttpRegistry(**{"url": "http://localhost", **settings})


def test_a_file_serves_ids_without_a_network(tmp_path: Path) -> None:
    path = tmp_path / "ids.json"
    path.write_text(json.dumps({"schemas": {"7": OLD, "8": NEW}, "subjects": {"r-value": 8}}))
    codec = Avro(NEW, Confluent(FileRegistry(path), "r-value"))
    assert codec.encode({"a": 1, "b": 2}) == message(8, "0204")
    assert codec.decode(message(7, "02")) == {"a": 1, "b": 0}
    with pytest.raises(DeserializationError, match=r"schema id 9 is not in .*ids\.json"):
        codec.decode(message(9, "02"))
    with pytest.raises(ConfigurationError, match="no subject 'r-value' with the schema R"):
        Avro(OLD, Confluent(FileRegistry(path), "r-value")).encode({"a": 1})


MONEY = {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]}
LINE = {"type": "record", "name": "Line", "fields": [{"name": "price", "type": "Money"}]}
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "line", "type": "Line"}]}


def test_a_schema_in_a_file_is_read_with_those_that_it_refers_to(tmp_path: Path) -> None:
    path = tmp_path / "schemas.json"
    line = {"schemaType": "AVRO", "schema": LINE, "references": {"Money": 1}}
    order = {"schemaType": "AVRO", "schema": ORDER, "references": {"Line": "2"}}
    path.write_text(json.dumps({"schemas": {"1": MONEY, "2": line, "3": order}, "subjects": {"s": 3}}))
    money_within = {**LINE, "fields": [{"name": "price", "type": MONEY}]}
    reader = {**ORDER, "fields": [{"name": "line", "type": money_within}]}
    codec = Avro(reader, Confluent(FileRegistry(path), "s"))
    value = {"line": {"price": {"cents": 5}}}
    assert codec.decode(message(3, "0a")) == value
    assert codec.encode(value) == message(3, "0a")


@pytest.mark.parametrize(
    ("references", "reason"),
    [
        ({"Money": 9}, "'Money' is schema id 9, which it does not have"),
        ({"Money": 1, "Line": 4}, "'Money' is two schemas"),
        ([{"name": "Money"}], "references are no names with ids"),
        ({}, "Money"),
    ],
)
def test_a_file_whose_references_lead_nowhere_is_refused(
    tmp_path: Path, references: Any, reason: str
) -> None:
    path = tmp_path / "schemas.json"
    order = {"schemaType": "AVRO", "schema": LINE, "references": references}
    line = {"schemaType": "AVRO", "schema": {**ORDER, "fields": []}, "references": {"Money": 2}}
    other = {**MONEY, "fields": []}
    path.write_text(json.dumps({"schemas": {"1": MONEY, "2": other, "3": order, "4": line}}))
    with pytest.raises(ConfigurationError, match=reason):
        FileRegistry(path)


def test_ids_of_one_canonical_form_keep_their_logical_types_apart(tmp_path: Path) -> None:
    millis, micros = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))
    path = tmp_path / "schemas.json"
    path.write_text(json.dumps({"schemas": {"1": millis, "2": micros}, "subjects": {"a": 1}}))
    registry = FileRegistry(path)
    codec = Avro(micros, Confluent(registry, "a"))
    assert codec.decode(bytes.fromhex("000000000200")).year == 1970
    with pytest.raises(DeserializationError, match="timestamp-millis cannot be read as timestamp-micros"):
        codec.decode(bytes.fromhex("000000000100"))
    with pytest.raises(ConfigurationError, match="no subject 'a' with the schema"):
        codec.encode(codec.decode(bytes.fromhex("000000000200")))


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"schemas": {"7": "lang"}}', json.dumps({"schemas": {"1": LOOP}})]
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "ids.json"
    path.write_text(content)
    with pytest.raises(ConfigurationError):
        FileRegistry(path)
    with pytest.raises(ConfigurationError, match=r"missing\.json"):
        FileRegistry(tmp_path / "missing.json")


@pytest.mark.parametrize(
    "answer",
    [
        (200, {}),
        (200, []),
        (200, {"schema": 5}),
        (200, {"schema": None}),
        (200, {"schema": ["int"]}),
        (200, {"id": 7}),
        (200, b"<html>proxy</html>"),
        (200, b'{"schema": "\\"str'),
        (200, b"[" * 200_000),
        (200, b'{"schema": "' + b" " * 5_000_000 + b'"}'),
        (500, {"schema": '"int"'}),
        (502, b""),
        (404, b"not here"),
    ],
)
def test_an_answer_that_is_none_means_retry_later(
    server: Server, registry: HttpRegistry, answer: tuple[int, Any]
) -> None:
    server.answers["GET", "/schemas/ids/7"] = answer
    with pytest.raises(RetryLater):
        Avro("int", Confluent(registry)).decode(message(7, "02"))


@pytest.mark.parametrize("number", ["7", None, -1, 1 << 63, [7]])
def test_an_id_that_is_none_means_retry_later(server: Server, registry: HttpRegistry, number: Any) -> None:
    server.answers["POST", "/subjects/s"] = 200, {"id": number}
    with pytest.raises(RetryLater, match="has no id"):
        Avro("int", Confluent(registry, "s")).encode(1)


def test_an_id_that_the_framing_has_no_room_for_is_refused(server: Server, registry: HttpRegistry) -> None:
    server.answers["POST", "/subjects/s"] = 200, {"id": 1 << 40}
    with pytest.raises(ConfigurationError, match="has 4 bytes, and this is 1099511627776"):
        Avro("int", Confluent(registry, "s")).encode(1)
    assert Avro("int", Apicurio(registry, "s")).encode(1) == b"\x00" + (1 << 40).to_bytes(8, "big") + b"\x02"


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-Long: "], ids=["body", "header"]
)
def test_an_answer_that_comes_in_drops_is_given_up_after_the_timeout(clock: Clock, head: bytes) -> None:
    class Drops(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(head)
            for _ in range(200):
                self.wfile.write(b" ")
                time.sleep(0.02)

        def log_message(self, *_: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Drops)
    http.handle_error = lambda *_: None  # type: ignore[method-assign] # the caller hangs up
    thread = threading.Thread(target=http.serve_forever, args=(0.02,))
    thread.start()
    registry = HttpRegistry(
        f"http://127.0.0.1:{http.server_port}", timeout=0.2, attempts=1, wait=clock.pauses.append
    )
    began = time.monotonic()
    with pytest.raises(RetryLater, match="no whole answer within"):
        Avro("int", Confluent(registry)).decode(message(7, "02"))
    assert time.monotonic() - began < 2
    registry.close()
    http.shutdown()
    http.server_close()
    thread.join()


def test_a_thread_waits_for_the_requests_of_another_no_longer_than_for_its_own(clock: Clock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        registry = HttpRegistry(url, timeout=0.4, attempts=1, wait=clock.pauses.append)
        codec = Avro("int", Confluent(registry))
        waits = []

        def decode() -> None:
            began = time.monotonic()
            with pytest.raises(RetryLater):
                codec.decode(message(7, "02"))
            waits.append(time.monotonic() - began)

        threads = [threading.Thread(target=decode) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        registry.close()
    assert len(waits) == 8
    assert max(waits) < 2  # one after the other, they would wait for 3.2 s


def test_schemas_that_refer_to_others_are_read_together_with_them(
    server: Server, registry: HttpRegistry
) -> None:
    money = {
        "type": "record",
        "name": "Money",
        "namespace": "acme",
        "fields": [{"name": "cents", "type": "long"}],
    }
    line = {"type": "record", "name": "acme.Line", "fields": [{"name": "price", "type": "Money"}]}
    order = {
        "type": "record",
        "name": "Order",
        "namespace": "acme",
        "fields": [
            {"name": "lines", "type": {"type": "array", "items": "acme.Line"}},
            {"name": "total", "type": ["null", "Money"]},
        ],
    }

    def names(*each: str) -> list[dict[str, Any]]:
        return [{"name": f"acme.{name}", "subject": name.lower(), "version": 1} for name in each]

    def version(subject: str, schema: Any, *refers: str) -> None:
        content = {"schema": json.dumps(schema), "references": names(*refers)}
        server.answers["GET", f"/subjects/{subject}/versions/1"] = 200, content

    version("money", money)
    version("line", line, "Money")
    server.has(7, order, references=names("Line", "Money"))
    alone = {
        **order,
        "fields": [
            {
                "name": "lines",
                "type": {"type": "array", "items": {**line, "fields": [{"name": "price", "type": money}]}},
            },
            {"name": "total", "type": ["null", "acme.Money"]},
        ],
    }
    codec = Avro(alone, Confluent(registry))
    value = {"lines": [{"price": {"cents": 5}}], "total": {"cents": 5}}
    body = Avro(alone, Plain()).encode(value)
    assert codec.decode(message(7, body.hex())) == value
    assert sorted(server.requests) == [
        "/schemas/ids/7",
        "/subjects/line/versions/1",
        "/subjects/money/versions/1",
    ]


def test_a_reference_that_the_registry_does_not_know_is_poison(
    server: Server, registry: HttpRegistry
) -> None:
    server.has(7, OLD, references=[{"name": "X", "subject": "x", "version": 3}])
    with pytest.raises(
        DeserializationError, match="refers to version 3 of 'x', which the registry does not know"
    ):
        Avro(OLD, Confluent(registry)).decode(message(7, "02"))
