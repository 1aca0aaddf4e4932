"""Rows in Elasticsearch: a document per row, whose version is the number of its write.

A deleted row stays as a document without data: a minute after a real deletion, Elasticsearch forgets the version of the
document and would accept a zombie's write. Reads are by id and see every write at once; searches see writes after a
refresh.
"""

from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from elasticsearch import ApiError, Elasticsearch, TransportError, UnsupportedProductError
from elasticsearch import SerializationError as ClientSerializationError

from microbatch.stores.port import Deletion, Found, Row, VersionedFields, WriteResult, tenant_name
from microbatch.stores.versions import Head
from streamtable.errors import ConfigurationError, RetryLater, SerializationError, StateLost

R = TypeVar("R")
_LONGEST_PLAIN_KEY = 256  # an id has 512 bytes at most
_BYTES_A_REQUEST = 20_000_000
_PAGE = 1000
_CHANGE_S = 30.0
_REFUSED, _NO_INDEX = "version_conflict_engine_exception", "index_not_found_exception"
# Transient errors of status 4xx: too many requests; a read-only index, mostly because the disk is full.
_PASSING = {"es_rejected_execution_exception", "circuit_breaking_exception", "cluster_block_exception"}
# The errors of a document whose search fields do not fit the mapping; before version 8.8 the second.
_NOT_FITTING = {"document_parsing_exception", "mapper_parsing_exception"}
_TOO_MANY, _SERVER = 429, 500


class FoundRow(NamedTuple):
    """A row that a search has found.

    Attributes:
        score: The relevance; higher is better.
        versions: The versions of the row that have the fields: `now`, `before`, or both.
    """

    key: bytes
    row: Row
    score: float
    versions: frozenset[str]


Query = Mapping[str, str | int | float | bool]


def mapping(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the mapping of the index, which rejects all other fields of a document."""
    # A keyword that is too long for Lucene is not indexed; otherwise its row would be rejected.
    limits = {"keyword": {"ignore_above": 8191}}
    types = {name: {"type": each, **limits.get(each, {})} for name, each in fields.items()}
    searched = VersionedFields._fields if types else ()
    versions = {name: {"dynamic": "strict", "properties": types} for name in searched}
    own = {"tenant": "keyword", "data": "binary", "key": "binary", "deleted": "boolean"}
    return {
        "dynamic": "strict",
        "properties": {**{name: {"type": each} for name, each in own.items()}, **versions},
    }


class ElasticsearchDriver:
    """A tenant's rows in one index.

    Args:
        urls: The URLs of one or more nodes, `https://host:9200`.
        alias: The alias of the index, as created by `create`.
        tenant: The tenant of the rows.
        options: The client's options for authentication: `api_key`, `basic_auth`, `ca_certs`.
    """

    def __init__(
        self, urls: str | Sequence[str], *, alias: str, tenant: str, options: Mapping[str, Any] | None = None
    ) -> None:
        self._tenant = tenant_name(tenant)
        self._alias = alias
        nodes = [urls] if isinstance(urls, str) else list(urls)
        places = (f"{urlsplit(url).hostname}:{urlsplit(url).port}" for url in nodes)  # without a password
        self._where = f"Elasticsearch at {', '.join(places)}"
        try:
            # Retries are up to the caller.
            self._client = Elasticsearch(nodes, max_retries=0, retry_on_timeout=False, **(options or {}))
        except (ValueError, TypeError) as error:
            raise ConfigurationError(f"not the address or options of an Elasticsearch: {error}") from error

    @property
    def alias(self) -> str:
        return self._alias

    def create(
        self,
        *,
        shards: int,
        replicas: int,
        refresh_seconds: float = 1.0,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        """Create the index `<alias>-1` and its alias if the alias is missing. Existing ones are left as they are.

        Args:
            shards: The number of shards of the index.
            replicas: The number of replicas of each shard.
            refresh_seconds: The seconds until searches see a write.
            fields: The search fields, as name -> type.
        """
        settings = {
            "number_of_shards": shards,
            "number_of_replicas": replicas,
            "refresh_interval": f"{int(refresh_seconds * 1000)}ms",
        }
        if not self.ask(lambda client: client.indices.exists_alias(name=self._alias)):
            self.ask(
                lambda client: client.indices.create(
                    index=f"{self._alias}-1",
                    aliases={self._alias: {}},
                    settings=settings,
                    mappings=mapping(fields or {}),
                )
            )

    def ask(self, request: Callable[[Elasticsearch], R], timeout: float = _CHANGE_S) -> R:
        """Send a request. Raises `RetryLater`, `ConfigurationError` or `SerializationError` like the methods of `Driver`."""
        client = self._client.options(request_timeout=timeout)
        return self._whole(lambda: request(client))

    def read(self, keys: Sequence[bytes], timeout: float) -> Found:
        ids = [self._id(key) for key in keys]
        client = self._client.options(request_timeout=timeout)
        answer = self._whole(lambda: client.mget(index=self._alias, ids=ids))
        rows, failed = {}, {}
        for key, found in zip(keys, answer["docs"], strict=True):
            if "error" in found:
                failed[key] = self._passing(found["error"], found.get("status", _SERVER))
            elif found["found"] and (data := found["_source"].get("data")) is not None:
                if found["_source"].get("tenant") != self._tenant:
                    raise StateLost(
                        f"document {found['_id']!r} of {self._alias} was not written by this library"
                    )
                rows[key] = Row(found["_version"], b64decode(data))
        return Found(rows, failed)

    def write(self, rows: Mapping[bytes, bytes | None], number: int | None, timeout: float) -> WriteResult:
        return self.write_found_by(rows, number, timeout, {})

    def write_found_by(
        self,
        rows: Mapping[bytes, bytes | None],
        number: int | None,
        timeout: float,
        fields: Mapping[bytes, VersionedFields],
    ) -> WriteResult:
        failed: dict[bytes, str] = {}
        refused: set[bytes] = set()
        client = self._client.options(request_timeout=timeout)
        for keys, operations in self._requests(rows, number, fields):
            # Without an alias of that name, Elasticsearch would create an index and guess its fields.
            answer = self._whole(
                lambda operations=operations: client.bulk(  # type: ignore[misc] # a default binds the loop's value
                    index=self._alias, operations=operations, require_alias=True
                )
            )
            if not answer["errors"]:
                continue
            for key, item in zip(keys, answer["items"], strict=True):
                (done,) = item.values()
                if "error" not in done:
                    continue
                if done["error"]["type"] == _REFUSED:
                    refused.add(key)
                elif done["error"]["type"] in _NOT_FITTING:
                    raise SerializationError(
                        f"the search fields of row {key[:100]!r} do not fit the index {self._alias!r}: {done['error'].get('reason')}"
                    )
                else:
                    failed[key] = self._passing(done["error"], done["status"])
        return WriteResult(failed, frozenset(refused))

    def find(self, fields: Query, limit: int, timeout: float) -> list[FoundRow]:
        """Return rows with a version, committed or not, that has these fields; the best first.

        Args:
            fields: The values by field. A text field must contain all the words; other fields must be equal.
            limit: The maximal number of rows, 1 to 10,000.
            timeout: The timeout in seconds; a partial answer counts as no answer.
        """

        def clause(version: str) -> dict[str, Any]:
            must = [
                {"match": {f"{version}.{name}": {"query": value, "operator": "and"}}}
                for name, value in fields.items()
            ]
            return {"bool": {"must": must, "_name": version}}

        query = {
            "bool": {
                "filter": [{"term": {"tenant": self._tenant}}],
                "should": [clause(version) for version in VersionedFields._fields],
                "minimum_should_match": 1,
            }
        }
        answer = self.ask(
            lambda client: client.search(
                index=self._alias,
                query=query,
                size=limit,
                version=True,
                source_includes=["data", "key"],
                timeout=f"{max(1, int(timeout * 1000))}ms",
                allow_partial_search_results=False,
            ),
            timeout,
        )
        if answer["timed_out"]:
            raise RetryLater(f"{self._where}: the search took longer than {timeout:g} s")
        return [
            FoundRow(
                self._key(hit),
                Row(hit["_version"], b64decode(hit["_source"]["data"])),
                hit["_score"],
                frozenset(hit["matched_queries"]),
            )
            for hit in answer["hits"]["hits"]
        ]

    def deletions(self, timeout: float) -> Iterator[Sequence[Deletion]]:
        point = self.ask(
            lambda client: client.open_point_in_time(index=self._alias, keep_alive="5m"), timeout
        )
        place: dict[str, Any] = {"id": point["id"], "keep_alive": "5m"}
        query = {"bool": {"filter": [{"term": {"tenant": self._tenant}}, {"term": {"deleted": True}}]}}
        after = None
        try:
            while True:
                answer = self.ask(
                    lambda client, after=after: client.search(  # type: ignore[misc] # a default binds the loop's value
                        pit=place,
                        query=query,
                        size=_PAGE,
                        sort=["_shard_doc"],
                        search_after=after,
                        version=True,
                    ),
                    timeout,
                )
                hits = answer["hits"]["hits"]
                heads = [(hit, Head.of(b64decode(hit["_source"]["data"]))) for hit in hits]
                yield [
                    Deletion(self._key(hit), hit["_version"], head.partition)
                    for hit, head in heads
                    if head and head.deleted
                ]
                if len(hits) < _PAGE:
                    return
                after = hits[-1]["sort"]
        finally:
            self.ask(lambda client: client.close_point_in_time(id=point["id"]), timeout)

    def forget(self, deletions: Sequence[Deletion], timeout: float) -> int:
        """Delete rows that are unchanged after a second read; a concurrent write is always detected."""
        if not deletions:
            return 0
        numbers = {self._id(each.key): each.number for each in deletions}
        answer = self.ask(
            lambda client: client.mget(index=self._alias, ids=list(numbers), source=False), timeout
        )
        places = [
            {"_id": found["_id"], "if_seq_no": found["_seq_no"], "if_primary_term": found["_primary_term"]}
            for found in answer["docs"]
            if found.get("found") and found["_version"] == numbers[found["_id"]]
        ]
        if not places:
            return 0
        operations = [{"delete": place} for place in places]
        done = self.ask(
            lambda client: client.bulk(index=self._alias, operations=operations, require_alias=True), timeout
        )
        return sum("error" not in item["delete"] for item in done["items"])

    def flush(self, timeout: float) -> None:
        client = self._client.options(request_timeout=timeout)
        self._whole(lambda: client.indices.refresh(index=self._alias))

    def close(self) -> None:
        self._client.close()

    def _requests(
        self, rows: Mapping[bytes, bytes | None], number: int | None, fields: Mapping[bytes, VersionedFields]
    ) -> Iterator[tuple[list[bytes], list[dict[str, Any]]]]:
        version = {} if number is None else {"version": number, "version_type": "external_gte"}
        keys: list[bytes] = []
        operations: list[dict[str, Any]] = []
        size = 0
        for key, data in rows.items():
            if keys and size + len(data or b"") > _BYTES_A_REQUEST:
                yield keys, operations
                keys, operations, size = [], [], 0
            size += len(data or b"")
            keys.append(key)
            place = {"_id": self._id(key), **version}
            if data is None and number is None:
                operations.append({"delete": place})
            else:
                operations += [{"index": place}, self._document(key, data, fields.get(key))]
        if keys:
            yield keys, operations

    def _document(self, key: bytes, data: bytes | None, found_by: VersionedFields | None) -> dict[str, Any]:
        if data is None:
            return {"tenant": self._tenant}
        document: dict[str, Any] = {"tenant": self._tenant, "data": b64encode(data).decode()}
        head = Head.of(data)
        if head and head.deleted:
            document["deleted"] = True
        versions = zip(VersionedFields._fields, found_by or (), strict=False)
        document.update((name, fields) for name, fields in versions if fields is not None)
        if len(key) > _LONGEST_PLAIN_KEY:  # the id has only its digest
            document["key"] = b64encode(key).decode()
        return document

    def _key(self, hit: Mapping[str, Any]) -> bytes:
        if "key" in hit["_source"]:
            return b64decode(hit["_source"]["key"])
        return urlsafe_b64decode(hit["_id"].removeprefix(f"{self._tenant}:"))

    def _id(self, key: bytes) -> str:
        if len(key) <= _LONGEST_PLAIN_KEY:
            return f"{self._tenant}:{urlsafe_b64encode(key).decode()}"
        return f"{self._tenant}:~{sha256(key).hexdigest()}"

    def _whole(self, ask: Callable[[], R]) -> R:
        """Send a request, and raise errors that concern the request as a whole."""
        try:
            answer = ask()
        except UnsupportedProductError as error:  # mostly because the response was cut off within the headers
            raise RetryLater(f"{self._where}: {error}") from error
        except ApiError as error:
            said = error.body.get("error") if isinstance(error.body, dict) else None
            details = said if isinstance(said, dict) else {"type": "", "reason": str(error)}
            raise RetryLater(self._passing(details, error.meta.status)) from error
        except RecursionError as error:
            raise SerializationError(f"a value is nested too deep for {self._where}") from error
        except TransportError as error:
            causes = "".join(f" ({cause})" for cause in error.errors[-1:])
            # The client calls a response that it cannot read the same.
            if isinstance(error, ClientSerializationError) and error.message.startswith(
                "Unable to serialize"
            ):
                raise SerializationError(f"a value is no JSON, for {self._where}{causes}") from error
            raise RetryLater(f"{self._where}: {error}{causes}") from error
        # If cut off within its headers, a response has neither length nor type and looks empty.
        if not isinstance(getattr(answer, "body", None), dict | bool):
            raise RetryLater(f"{self._where}: the response was cut off")
        return answer

    def _passing(self, error: Mapping[str, Any], status: int) -> str:
        """Return the reason if a retry makes sense; otherwise raise the error."""
        (error, *_) = error.get("root_cause") or [error]  # different for searches only
        kind, reason = error.get("type", ""), error.get("reason", "")
        text = f"{self._where}: {kind}: {reason}"
        if kind in _PASSING or status == _TOO_MANY or (status >= _SERVER and kind != _NO_INDEX):
            return text
        advice = f" (only `create` creates the alias {self._alias!r})" if kind == _NO_INDEX else ""
        raise ConfigurationError(text + advice)
