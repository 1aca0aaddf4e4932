"""Schema registries: over HTTP, as Confluent's API is documented, and from a file. Each id is requested once."""

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Lock, Timer
from time import monotonic, sleep
from typing import Any, Literal, Protocol
from urllib.parse import quote

from httpx import Client, HTTPError, Limits, ReadTimeout, codes
from orjson import dumps, loads

from exactavro import Schema, Unusable, make_reader
from streamtable.errors import ConfigurationError, DeserializationError, RetryLater
from streamtable_codecs.access import Basic, Bearer, Tls
from streamtable_codecs.schemas import Definition, Registered, Subjects, TopicName

_NOT_FOUND_CODES = {40401, 40402, 40403}
_FIRST_PAUSE_SECONDS = 0.1
_UNKNOWN_IDS_MAX = 10_000
_REFUSED = {codes.CONFLICT, codes.UNPROCESSABLE_ENTITY}
_ID_END = 1 << 63
_ANSWER_BYTES_MAX = 4_000_000
_REFERENCES_MAX = 100


class Registry(Protocol):
    """A schema registry. Safe to call from any thread.

    Attributes:
        subjects: The rule for subjects.
    """

    @property
    def subjects(self) -> Subjects: ...

    def schema(self, schema_id: int | str) -> Registered:
        """Return the schema of an id. Raises `RetryLater`, and `DeserializationError` if there is none."""

    def id_of(self, subject: str, definition: Definition) -> int | str:
        """Return the id of a registered schema. Raises `ConfigurationError` if it is not registered, and `RetryLater`."""


class FileRegistry:
    """A registry in a JSON file: `{"schemas": {"7": <schema>}, "subjects": {"user-clicks-value": 7}}`.

    A schema is Avro's, or `{"schemaType": "JSON", "schema": <schema>}`, or the same with `PROTOBUF` and a text. Ids are numbers,
    or other texts, such as the UUIDs of AWS Glue. A schema of this second form may refer to others of the file, by the names
    that it has for them: `{"schemaType": "PROTOBUF", "schema": <text>, "references": {"money.proto": 8}}`.

    Args:
        path: The file.
        subjects: The rule for subjects.

    Raises:
        ConfigurationError: The file is missing, is not of this form, or holds a schema that is not safe.
    """

    def __init__(self, path: Path, *, subjects: Subjects | None = None) -> None:
        self.subjects = subjects or TopicName()
        try:
            content = loads(path.read_bytes())
            schemas = {str(number): each for number, each in content["schemas"].items()}
            self._schemas = {number: _in_file(each, schemas) for number, each in schemas.items()}
            self._subjects = {str(name): number for name, number in content.get("subjects", {}).items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(f"schema file {path}: {type(error).__name__}: {error}") from error
        self._path = path

    def schema(self, schema_id: int | str) -> Registered:
        try:
            return self._schemas[str(schema_id)]
        except KeyError:
            raise DeserializationError(f"schema id {schema_id} is not in {self._path}") from None

    def id_of(self, subject: str, definition: Definition) -> int | str:
        number: int | str | None = self._subjects.get(subject)
        known = None if number is None else self._schemas.get(str(number))
        if number is None or known is None or not _same(known, definition):
            raise ConfigurationError(
                f"{self._path} has no subject {subject!r} with the schema {definition.record}"
            )
        return number


def _in_file(content: Any, schemas: Mapping[str, Any]) -> Registered:
    """Return a schema of a file with all that it refers to. Raises `ValueError`: it, or a reference, is not valid."""
    if not _has_type(content):
        return Registered("AVRO", Schema.load(content).text)
    found: dict[str, str] = {}
    waiting = [content]
    while waiting:
        for name, number in _references_in_file(waiting.pop()):
            if number not in schemas:
                raise ValueError(f"the reference {name!r} is schema id {number}, which it does not have")
            text = _text_in_file(schemas[number])
            if name not in found:
                waiting.append(schemas[number])
            if found.setdefault(name, text) != text:
                raise ValueError(f"the reference {name!r} is two schemas")
    registered = Registered(content["schemaType"], _text_in_file(content), found)
    if registered.kind == "AVRO":
        Schema.load(registered.text, found)
    return registered


def _has_type(content: Any) -> bool:
    return isinstance(content, dict) and "schemaType" in content


def _text_in_file(content: Any) -> str:
    given = content["schema"] if _has_type(content) else content
    return given if isinstance(given, str) else dumps(given).decode()


def _references_in_file(content: Any) -> Iterator[tuple[str, str]]:
    """Yield the names and ids of the schemas that a schema of a file refers to."""
    given = content.get("references", {}) if _has_type(content) else {}
    if not isinstance(given, dict):
        raise TypeError("references are no names with ids")
    for name, number in given.items():
        yield str(name), str(number)


def _same(registered: Registered, definition: Definition) -> bool:
    """Whether two schemas give the same bytes with the same meaning: Avro's canonical form drops logical types."""
    if registered.kind != definition.kind:
        return False
    if registered.kind == "JSON":
        return bool(loads(registered.text) == loads(definition.text))
    if registered.kind == "PROTOBUF":
        known = registered.references
        # A file may lack what its schemas import.
        return registered.text == definition.text and all(
            known.get(name, text) == text for name, text in _imported(definition)
        )
    before, now = Schema.load(registered.text, registered.references), Schema.load(definition.text)
    try:
        make_reader(before, now)
    except Unusable:
        return False
    return before.canonical == now.canonical


def _imported(definition: Definition) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of all schemas that a definition refers to."""
    for name, each in definition.imports:
        yield name, each.text
        yield from _imported(each)


class HttpRegistry:
    """A registry at a URL, whose answers are as Confluent's API is documented. An id is requested once, and cached for ever.

    Args:
        url: For example "http://localhost:8081"; of Apicurio, "http://localhost:8080/apis/ccompat/v7".
        auth: The user or the token, if the registry wants them.
        tls: The certificates of an https URL; default: the system's authorities.
        subjects: The rule for the subject of a topic's keys or values; default: `TopicName()`.
        register: Whether a schema that is not registered is refused ("never", the default) or registered ("missing", for
            development) by the first record that is written with it.
        timeout: Seconds for one request, with its whole answer.
        attempts: Requests before `RetryLater`, with pauses of 0.1, 0.2, 0.4 ... seconds between them. A schema with those
            that it refers to takes no more time than these; neither does a thread wait longer for another's requests.
        unknown_seconds: The seconds before an id that the registry did not know is requested again.
        clock: Monotonic seconds.
        wait: Sleeps for a number of seconds.

    Raises:
        ConfigurationError: A setting is invalid, or a file of `tls` cannot be read.
    """

    def __init__(
        self,
        url: str,
        *,
        auth: Basic | Bearer | None = None,
        tls: Tls | None = None,
        subjects: Subjects | None = None,
        register: Literal["never", "missing"] = "never",
        timeout: float = 2.0,
        attempts: int = 3,
        unknown_seconds: float = 60.0,
        clock: Callable[[], float] = monotonic,
        wait: Callable[[float], None] = sleep,
    ) -> None:
        if not url.startswith(("http://", "https://")) or attempts < 1 or timeout <= 0:
            raise ConfigurationError("registry: needs an http(s) URL, an attempt and a timeout above 0")
        if register not in {"never", "missing"}:
            raise ConfigurationError(f"registry: register={register!r}: give 'never' or 'missing'")
        self.url = url.rstrip("/")
        self.subjects = subjects or TopicName()
        self._register = register
        self._client = Client(
            auth=auth.flow() if auth else None,
            verify=tls.context() if tls else True,
            timeout=timeout,
            headers={"Accept": "application/vnd.schemaregistry.v1+json, application/json"},
            limits=Limits(max_keepalive_connections=0),  # requests are rare, and each may be cut
        )
        self._timeout = timeout
        self._attempts = attempts
        self._longest = attempts * timeout + _FIRST_PAUSE_SECONDS * 2 ** (attempts - 1)
        self._unknown_seconds = unknown_seconds
        self._clock = clock
        self._wait = wait
        self._lock = Lock()
        self._schemas: dict[int | str, Registered] = {}
        self._ids: dict[tuple[str, Definition], int] = {}
        self._unknown: dict[int | str, tuple[float, str]] = {}

    def schema(self, schema_id: int | str) -> Registered:
        """See `Registry`."""
        if known := self._schemas.get(schema_id):
            return known
        with self._alone():  # one thread asks, the others find its answer
            known = self._schemas.get(schema_id)
            if known is None:
                known = self._schemas[schema_id] = self._ask_schema(schema_id)
            return known

    def id_of(self, subject: str, definition: Definition) -> int:
        """See `Registry`."""
        with self._alone():
            known = self._ids.get((subject, definition))
            if known is None:
                known = self._ids[subject, definition] = self._ask_id(subject, definition)
                self._unknown.pop(known, None)  # it may have been met before it was registered
            return known

    def registered(self, subject: str, definition: Definition) -> int | None:
        """Return the id of a schema under a subject; None if it is not registered there. Raises `RetryLater`."""
        with self._alone():
            found = self._look_up(subject, definition)
            return None if found is None else self._number(found, "id", subject)

    def compatible(self, subject: str, definition: Definition) -> str:
        """Return why a schema does not fit the subject's rule of compatibility; "" if it fits, or is the first.

        A registry that does not test by the rule, such as an old one, compares it with the latest version. Raises `RetryLater`.
        """
        with self._alone():
            return self._refusal(subject, definition)

    def register_schema(self, subject: str, definition: Definition) -> int:
        """Register a schema, with those that it refers to, and return its id. Raises `RetryLater`, `ConfigurationError`."""
        with self._alone():
            return self._register_new(subject, definition)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=self._longest):
            raise RetryLater(f"registry {self.url}: another thread waits for its answer")
        try:
            yield
        finally:
            self._lock.release()

    # ---- schemas by id ----

    def _ask_schema(self, schema_id: int | str) -> Registered:
        until, message = self._unknown.get(schema_id, (0.0, ""))
        if message and self._clock() < until:
            raise DeserializationError(message)
        # A GUID is a text; other registries number schemas.
        path = f"/schemas/{'guids' if isinstance(schema_id, str) else 'ids'}/{schema_id}"
        answer = self._ask("GET", path, None, ("schema",))
        if answer is None:
            raise self._poison(schema_id, "the registry does not know it")
        try:
            kind = str(answer.get("schemaType") or "AVRO")
            if kind == "PROTOBUF":
                # Its descriptor, if the registry makes one: without a compiler its source says less.
                form = "?format=serialized"
                answer = self._ask("GET", path + form, None, ("schema",)) or answer
                return Registered(kind, self._text_of(answer), self._referred(answer, form))
            return Registered(kind, self._text_of(answer), self._referred(answer))
        except Unusable as error:
            raise self._poison(schema_id, str(error)) from error

    def _referred(self, answer: Mapping[str, Any], form: str = "") -> Mapping[str, str]:
        """Return the schemas that a schema refers to, and those that they refer to. Raises `Unusable` and `RetryLater`."""
        found: dict[str, str] = {}
        waiting, end = [answer], self._clock() + self._longest
        while waiting:
            for name, subject, version in _references(waiting.pop()):
                if name in found:
                    continue
                if len(found) >= _REFERENCES_MAX:
                    raise Unusable(f"refers to more than {_REFERENCES_MAX} schemas")
                if self._clock() > end:
                    raise RetryLater(f"registry {self.url}: not all schemas within {self._longest:g} s")
                path = f"/subjects/{quote(subject, safe='')}/versions/{version}{form}"
                other = self._ask("GET", path, None, ("schema",))
                if other is None:
                    raise Unusable(
                        f"refers to version {version} of {subject!r}, which the registry does not know"
                    )
                found[name] = self._text_of(other)
                waiting.append(other)
        return found

    def _text_of(self, answer: Mapping[str, Any]) -> str:
        text = answer.get("schema")
        if not isinstance(text, str):
            raise RetryLater(f"registry {self.url}: its answer has no schema")
        return text

    def _poison(self, schema_id: int | str, message: str) -> DeserializationError:
        """Return the error and remember it for a while, without asking the registry again."""
        while len(self._unknown) >= _UNKNOWN_IDS_MAX:
            del self._unknown[next(iter(self._unknown))]
        error = DeserializationError(f"schema id {schema_id}: {message}")
        self._unknown[schema_id] = self._clock() + self._unknown_seconds, error.message
        return error

    # ---- ids by schema ----

    def _ask_id(self, subject: str, definition: Definition) -> int:
        found = self._look_up(subject, definition)
        if found is None and self._register == "missing":
            return self._register_new(subject, definition)
        if found is None:
            reason = self._refusal(subject, definition)
            raise ConfigurationError(
                f"registry: {definition.record} is not registered under {subject!r}"
                + (
                    f", and would be refused ({reason}): make a change of the type that can read what was written before"
                    if reason
                    else "; register it before writing, as 'streamtable schemas apply --graph MODULE:NAME' does"
                )
            )
        return self._number(found, "id", subject)

    def _refusal(self, subject: str, definition: Definition) -> str:
        body = self._body(definition)
        if body is None:
            return ""  # it cannot be asked before the schemas that it refers to are registered
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions"
        # By the rule of the subject, as at registration. Some registries only compare with the latest version.
        latest = f"{path}/latest?verbose=true"
        answer = self._ask("POST", f"{path}?verbose=true", body, ("is_compatible",), latest)
        if answer is None or answer["is_compatible"] is True:
            return ""
        return "; ".join(map(str, answer.get("messages") or ())) or "the registry refuses it"

    def _look_up(self, subject: str, definition: Definition) -> Mapping[str, Any] | None:
        body = self._body(definition)
        if body is None:
            return None
        return self._ask("POST", f"/subjects/{quote(subject, safe='')}", body, ("id",))

    def _register_new(self, subject: str, definition: Definition) -> int:
        for name, other in definition.imports:
            self._register_new(name, other)
        path = f"/subjects/{quote(subject, safe='')}/versions"
        answer = self._ask("POST", path, self._body(definition), ("id",))
        if answer is None:
            raise RetryLater(f"registry {self.url}: it does not know the schema that was just registered")
        return self._number(answer, "id", subject)

    def _body(self, definition: Definition) -> dict[str, Any] | None:
        """Return the body of a request; None if a schema that it refers to is not registered."""
        body: dict[str, Any] = {"schema": definition.text}
        if definition.kind != "AVRO":
            body["schemaType"] = definition.kind
        if definition.imports:
            body["references"] = []
        for name, other in definition.imports:
            found = self._look_up(name, other)
            if found is None:
                return None
            version = self._number(found, "version", name)
            body["references"].append({"name": name, "subject": name, "version": version})
        return body

    def _number(self, answer: Mapping[str, Any], name: str, subject: str) -> int:
        number = answer.get(name)
        if type(number) is not int or not 0 <= number < _ID_END:
            raise RetryLater(f"registry {self.url}: its answer for {subject!r} has no {name}")
        return number

    # ---- requests ----

    def _ask(
        self, method: str, path: str, body: dict[str, Any] | None, fields: tuple[str, ...], instead: str = ""
    ) -> dict[str, Any] | None:
        """Return the registry's answer, which has these fields; None if it has no such resource.

        `instead`: the path that a registry is asked for that does not know the first one.

        Raises:
            RetryLater: It does not answer.
            ConfigurationError: It refuses what it is asked, such as a schema that is incompatible with those before.
        """
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
            if codes.is_success(status) and all(each in answer for each in fields):
                return answer
            if status in _REFUSED and "error_code" in answer:
                raise ConfigurationError(f"registry {self.url}: {method} {path}: {answer.get('message')}")
            problem = f"status {status}"
        if instead and problem in {"status 404", "status 405"}:  # it knows no such path
            return self._ask(method, instead, body, fields)
        raise RetryLater(f"registry {self.url} does not answer: {problem}")

    def _answer(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, Any]:
        """Return the status and the JSON of an answer of bounded size. Raises `HTTPError` and `ValueError`."""
        with (
            _cut_after(self._timeout) as trace,
            self._client.stream(method, self.url + path, json=body, extensions={"trace": trace}) as response,
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
