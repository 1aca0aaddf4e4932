"""A schema registry of the tests: a real HTTP server that answers as the API of Confluent's is documented.

confluent-kafka's client is served by it in the tests as well, so that not only our reading of the documentation judges it.
"""

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import UUID

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from exactavro import Schema, Unusable, make_reader
from exactjson import bare, unreadable

Answer = tuple[int, Any]


def missing(code: int, message: str) -> Answer:
    return 404, {"error_code": code, "message": message}


def guid_of(schema: dict[str, Any]) -> str:
    return str(UUID(bytes=md5(json.dumps(schema, sort_keys=True).encode(), usedforsecurity=False).digest()))


class StandIn:
    """The schemas and subjects of a registry.

    Attributes:
        requests: The requests so far, as `GET /schemas/ids/1`.
        headers: The header `Authorization` of each.
        away: Whether it answers with status 503.
        transitive: Whether a new schema has to read what was written with all versions of its subject, not with the latest alone.
        sources: The source of a Protobuf schema by its descriptor, for the requests that do not ask for the latter.
    """

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.headers: list[str] = []
        self.sources: dict[str, str] = {}
        self.away = self.transitive = False
        self.url = ""

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> Answer:  # noqa: PLR0911 - one for each
        match method, *map(unquote, path.strip("/").split("/")):
            case ["GET", "schemas", "ids", number]:
                return self._by_id(number, query.get("format") == ["serialized"])
            case ["GET", "schemas", "guids", guid]:
                known = {guid_of(each): number for number, each in enumerate(self.schemas, start=1)}
                return self._by_id(str(known.get(guid, 0)), query.get("format") == ["serialized"])
            case ["GET", "subjects"]:
                return 200, sorted(self.subjects)
            case ["POST", "subjects", subject, "versions"]:
                return self._register(subject, body)
            case ["POST", "subjects", subject]:
                return self._look_up(subject, body)
            case ["GET", "subjects", subject, "versions", version]:
                return self._version(subject, version)
            case ["POST", "compatibility", "subjects", subject, "versions"]:
                return self._compatible(subject, body)
            case ["POST", "compatibility", "subjects", subject, "versions", "latest"]:
                return self._compatible(subject, body, latest=True)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _by_id(self, number: str, serialized: bool) -> Answer:  # noqa: FBT001 - a part of the query
        if not number.isdecimal() or not 0 < int(number) <= len(self.schemas):
            return missing(40403, "Schema not found")
        found = dict(self.schemas[int(number) - 1])
        if not serialized:
            found["schema"] = self.sources.get(found["schema"], found["schema"])
        return 200, found

    def _register(self, subject: str, body: Any) -> Answer:
        found = self._described(body)
        if found is None:
            return 422, {"error_code": 42201, "message": "Invalid schema"}
        status, verdict = self._compatible(subject, body)
        if status == 200 and not verdict["is_compatible"]:
            return 409, {"error_code": 409, "message": f"incompatible: {verdict['messages'][0]}"}
        if found not in self.schemas:
            self.schemas.append(found)
        number = self.schemas.index(found) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return 200, {"id": number, "guid": guid_of(found)}

    def _look_up(self, subject: str, body: Any) -> Answer:
        if subject not in self.subjects:
            return missing(40401, f"Subject '{subject}' not found.")
        found = self._described(body)
        for version, number in enumerate(self.subjects[subject], start=1):
            if self.schemas[number - 1] == found:
                return 200, {
                    "subject": subject,
                    "id": number,
                    "version": version,
                    "guid": guid_of(found),
                    **found,
                }
        return missing(40403, "Schema not found")

    def _version(self, subject: str, version: str) -> Answer:
        versions = self.subjects.get(subject)
        if versions is None:
            return missing(40401, f"Subject '{subject}' not found.")
        number = len(versions) if version == "latest" else int(version)
        if not 0 < number <= len(versions):
            return missing(40402, f"Version {version} not found.")
        found = self.schemas[versions[number - 1] - 1]
        return 200, {"subject": subject, "id": versions[number - 1], "version": number, **found}

    def _compatible(self, subject: str, body: Any, *, latest: bool = False) -> Answer:
        """Backward, as a registry does unless it is told otherwise; by its rule, or with the latest version."""
        if subject not in self.subjects:
            return missing(40401, f"Subject '{subject}' not found.")
        versions = self.subjects[subject][-1:] if latest or not self.transitive else self.subjects[subject]
        reasons = [each for each in (self._unreadable(self.schemas[n - 1], body) for n in versions) if each]
        return 200, {"is_compatible": not reasons, "messages": reasons}

    def _unreadable(self, before: dict[str, Any], body: Any) -> str:
        """Return why what was written with a schema cannot be read with another one; "" if it can."""
        now, reason = body["schema"], ""
        if before.get("schemaType", "AVRO") != body.get("schemaType", "AVRO"):
            reason = "another type of schema"
        elif body.get("schemaType") == "JSON":
            reason = unreadable(bare(json.loads(before["schema"])), bare(json.loads(now)))
        elif body.get("schemaType") is None:
            try:
                make_reader(Schema.load(before["schema"]), Schema.load(now))
            except Unusable as error:
                reason = str(error)
        return reason

    def _described(self, body: Any) -> dict[str, Any] | None:
        """Return a schema as it is kept; None if it is invalid."""
        kind, text = body.get("schemaType", "AVRO"), body["schema"]
        try:
            if kind == "PROTOBUF":
                FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
            else:
                text = json.dumps(json.loads(text))
        except Exception:  # noqa: BLE001 - whatever is wrong with it
            return None
        for each in body.get("references", ()):
            if self._version(each["subject"], str(each["version"]))[0] != 200:
                return None
        found = {"schema": text} if kind == "AVRO" else {"schema": text, "schemaType": kind}
        return {**found, "references": body["references"]} if body.get("references") else found


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[StandIn]:
    """Serve a registry at a free port, over TLS with these settings if there are any."""
    registry = StandIn()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            url = urlsplit(self.path)
            registry.requests.append(f"{self.command} {url.path}")
            registry.headers.append(self.headers.get("Authorization", ""))
            if registry.away:
                status, content = 503, {"error_code": 50301, "message": "away"}
            else:
                status, content = registry.answer(self.command, url.path, parse_qs(url.query), body)
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = respond  # noqa: N815 - names of the standard library

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # type: ignore[method-assign] # clients that are not trusted
    registry.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    yield registry
    server.shutdown()
    server.server_close()
    thread.join()
