"""Confluent-compatible schema registries: over HTTP, and from a file."""

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Lock, Timer
from time import monotonic, sleep
from typing import Any
from urllib.parse import quote

from httpx import Client, HTTPError, Limits, ReadTimeout, codes
from orjson import loads

from exactavro import Schema, Unusable, make_reader
from streamtable.errors import ConfigurationError, DeserializationError, RetryLater

_NOT_FOUND_CODES = {40401, 40402, 40403}
_FIRST_PAUSE_SECONDS = 0.1
_UNKNOWN_IDS_MAX = 10_000
_ID_END = 1 << 31
_ANSWER_BYTES_MAX = 4_000_000
_REFERENCES_MAX = 100


class FileRegistry:
    """A registry in a JSON file: `{"schemas": {"7": <schema>}, "subjects": {"user-clicks-value": 7}}`.

    Raises:
        ConfigurationError: The file is missing, is not of this form, or holds a schema that is not safe.
    """

    def __init__(self, path: Path) -> None:
        try:
            content = loads(path.read_bytes())
            self._schemas = {
                int(number): Schema.load(schema) for number, schema in content["schemas"].items()
            }
            self._subjects = {str(name): int(number) for name, number in content.get("subjects", {}).items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(f"schema file {path}: {type(error).__name__}: {error}") from error
        self._path = path

    def schema(self, schema_id: int) -> Schema:
        try:
            return self._schemas[schema_id]
        except KeyError:
            raise DeserializationError(f"schema id {schema_id} is not in {self._path}") from None

    def id_of(self, subject: str, schema: Schema) -> int:
        number = self._subjects.get(subject)
        known = None if number is None else self._schemas.get(number)
        if number is None or known is None or not _same(known, schema):
            raise ConfigurationError(f"{self._path} has no subject {subject!r} with the schema {schema.name}")
        return number


def _same(registered: Schema, schema: Schema) -> bool:
    """Whether two schemas give the same bytes with the same meaning: the canonical form drops logical types."""
    try:
        make_reader(registered, schema)
    except Unusable:
        return False
    return registered.canonical == schema.canonical


class HttpRegistry:
    """A registry at a URL. The meaning of an id never changes, so each is requested once.

    Args:
        url: For example "http://localhost:8081".
        auth: User name and password, if the registry wants them.
        timeout: Seconds for one request, with its whole answer.
        attempts: Requests before `RetryLater`, with pauses of 0.1, 0.2, 0.4 ... seconds between them. A schema with those
            that it refers to takes no more time than these; neither does a thread wait longer for another's requests.
        unknown_seconds: The seconds before an id that the registry did not know is requested again.
        clock: Monotonic seconds.
        wait: Sleeps for a number of seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        auth: tuple[str, str] | None = None,
        timeout: float = 2.0,
        attempts: int = 3,
        unknown_seconds: float = 60.0,
        clock: Callable[[], float] = monotonic,
        wait: Callable[[float], None] = sleep,
    ) -> None:
        if not url.startswith(("http://", "https://")) or attempts < 1 or timeout <= 0:
            raise ConfigurationError(
                "registry: needs an http(s) URL, at least 1 attempt and a timeout above 0"
            )
        self._url = url.rstrip("/")
        self._client = Client(
            auth=auth,
            timeout=timeout,
            headers={"Accept": "application/json"},
            limits=Limits(max_keepalive_connections=0),  # requests are rare, and each may be cut
        )
        self._timeout = timeout
        self._attempts = attempts
        self._longest = attempts * timeout + _FIRST_PAUSE_SECONDS * 2 ** (attempts - 1)
        self._unknown_seconds = unknown_seconds
        self._clock = clock
        self._wait = wait
        self._lock = Lock()
        self._schemas: dict[int, Schema] = {}
        self._ids: dict[tuple[str, str], int] = {}
        self._unknown: dict[int, tuple[float, str]] = {}

    def schema(self, schema_id: int) -> Schema:
        known = self._schemas.get(schema_id)
        if known is not None:
            return known
        with self._alone():  # one thread asks, the others find its answer
            known = self._schemas.get(schema_id)
            if known is None:
                known = self._schemas[schema_id] = self._ask_schema(schema_id)
            return known

    def id_of(self, subject: str, schema: Schema) -> int:
        with self._alone():
            key = subject, schema.text
            if key not in self._ids:
                answer = self._ask("POST", f"/subjects/{quote(subject, safe='')}", {"schema": schema.text})
                if answer is None:
                    raise ConfigurationError(
                        f"registry: {schema.name} is not registered under {subject!r}; register it before writing"
                    )
                number = answer.get("id")
                if type(number) is not int or not 0 <= number < _ID_END:
                    raise RetryLater(f"registry {self._url}: its answer for {subject!r} has no id")
                self._ids[key] = number
            return self._ids[key]

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=self._longest):
            raise RetryLater(f"registry {self._url}: another thread waits for its answer")
        try:
            yield
        finally:
            self._lock.release()

    def _ask_schema(self, schema_id: int) -> Schema:
        until, message = self._unknown.get(schema_id, (0.0, ""))
        if message and self._clock() < until:
            raise DeserializationError(message)
        answer = self._ask("GET", f"/schemas/ids/{schema_id}", None)
        if answer is None:
            raise self._poison(schema_id, "the registry does not know it")
        if answer.get("schemaType", "AVRO") != "AVRO":
            raise self._poison(schema_id, f"a schema of type {str(answer['schemaType'])[:100]}, not Avro")
        try:
            return self._schema_of(answer)
        except Unusable as error:
            raise self._poison(schema_id, str(error)) from error

    def _schema_of(self, answer: Mapping[str, Any]) -> Schema:
        """Return a schema together with those that it refers to. Raises `Unusable` and `RetryLater`."""
        text = self._text_of(answer)
        if not answer.get("references"):
            return Schema.load(text)
        found: dict[str, str] = {}
        waiting, end = [answer], self._clock() + self._longest
        while waiting:
            for name, subject, version in _references(waiting.pop()):
                if name in found:
                    continue
                if len(found) >= _REFERENCES_MAX:
                    raise Unusable(f"refers to more than {_REFERENCES_MAX} schemas")
                if self._clock() > end:
                    raise RetryLater(f"registry {self._url}: not all schemas within {self._longest:g} s")
                path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
                other = self._ask("GET", path, None)
                if other is None:
                    raise Unusable(
                        f"refers to version {version} of {subject!r}, which the registry does not know"
                    )
                found[name] = self._text_of(other)
                waiting.append(other)
        return Schema.load(text, found)

    def _text_of(self, answer: Mapping[str, Any]) -> str:
        text = answer.get("schema")
        if not isinstance(text, str):
            raise RetryLater(f"registry {self._url}: its answer has no schema")
        return text

    def _poison(self, schema_id: int, message: str) -> DeserializationError:
        """Return the error and remember it for a while, without asking the registry again."""
        while len(self._unknown) >= _UNKNOWN_IDS_MAX:
            del self._unknown[next(iter(self._unknown))]
        error = DeserializationError(f"schema id {schema_id}: {message}")
        self._unknown[schema_id] = self._clock() + self._unknown_seconds, error.message
        return error

    def _ask(self, method: str, path: str, body: dict[str, str] | None) -> dict[str, Any] | None:
        """Return the registry's answer; None if it has no such resource. Raises `RetryLater`."""
        problem = ""
        for attempt in range(self._attempts):
            if attempt:
                self._wait(_FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
            try:
                status, content = self._answer(method, path, body)
            except (HTTPError, ValueError) as error:
                problem = f"{type(error).__name__}: {error}"
                continue
            answer = content if isinstance(content, dict) else {}
            # A 404 without one of these codes comes from something else at this address, and is no verdict.
            if status == codes.NOT_FOUND and answer.get("error_code") in _NOT_FOUND_CODES:
                return None
            if codes.is_success(status) and ("schema" in answer or "id" in answer):
                return answer
            problem = f"status {status}"
        raise RetryLater(f"registry {self._url} does not answer: {problem}")

    def _answer(self, method: str, path: str, body: dict[str, str] | None) -> tuple[int, Any]:
        """Return the status and the JSON of an answer of bounded size. Raises `HTTPError` and `ValueError`."""
        with (
            _cut_after(self._timeout) as trace,
            self._client.stream(method, self._url + path, json=body, extensions={"trace": trace}) as response,
        ):
            parts: list[bytes] = []
            size = 0
            for part in response.iter_bytes():
                size += len(part)
                parts.append(part)
                if size > _ANSWER_BYTES_MAX:
                    raise ValueError(f"an answer of more than {_ANSWER_BYTES_MAX} bytes")
            return response.status_code, loads(b"".join(parts))


@contextmanager
def _cut_after(seconds: float) -> Iterator[Callable[[str, dict[str, Any]], None]]:
    """Shut down the connection of a request after these seconds: the client's own timeout starts again with each byte of a header.

    Yields the request's `trace` extension, which tells the connection. It must not be reused for other requests.

    Raises:
        ReadTimeout: It has been shut down.
    """
    sockets: list[socket.socket] = []
    over = Event()

    def shut_down() -> None:
        over.set()
        for each in sockets:
            with suppress(OSError):  # it has been closed
                each.shutdown(socket.SHUT_RDWR)

    def trace(event: str, info: dict[str, Any]) -> None:
        if event in {"connection.connect_tcp.complete", "connection.start_tls.complete"}:
            sockets.append(info["return_value"].get_extra_info("socket"))
            if over.is_set():
                shut_down()

    timer = Timer(seconds, shut_down)
    timer.daemon = True
    timer.start()
    try:
        yield trace
        problem: Exception | None = None
    except (HTTPError, ValueError) as error:
        problem = error
    finally:
        timer.cancel()
    if over.is_set():  # an answer without a length may look whole
        raise ReadTimeout(f"no whole answer within {seconds:g} s") from problem
    if problem is not None:
        raise problem


def _references(answer: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    """Yield the name, subject and version of each schema that a schema refers to. Raises `Unusable`."""
    given = answer.get("references") or []
    for each in given if isinstance(given, list) else [given]:
        match each:
            case {"name": str(name), "subject": str(subject), "version": int(version)}:
                yield name, subject, version
            case _:
                raise Unusable(f"has a reference that is none: {str(each)[:100]}")
