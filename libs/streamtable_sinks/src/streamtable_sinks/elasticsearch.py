"""Elasticsearch as the target of a sink: the latest state. Needs the extra `elasticsearch`.

Documents and position are not written in one step, so writes are idempotent instead: a document's version is the offset of its
change, and Elasticsearch ignores a lower one. A batch that is written again, or late by a former owner, changes nothing.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any, Final, TypeVar

import structlog
from elasticsearch import ApiError, ConflictError, NotFoundError, SerializationError, TransportError
from elasticsearch import Elasticsearch as Client
from elasticsearch.serializer import JsonSerializer

from streamtable import Codec
from streamtable.base.ports import ShownValues
from streamtable.errors import ConfigurationError, Migrated, Rejected, RetryLater, StreamtableError
from streamtable_sinks.columns import converted, in_json, row_maker, tree_of
from streamtable_sinks.target import (
    Changes,
    SinkChange,
    SinkPartition,
    SinkSource,
    TakenPartition,
    TargetOfOneSink,
    TargetPosition,
)

log = structlog.get_logger()

R = TypeVar("R")
POSITIONS: Final = "streamtable-positions"
_TIMEOUT_S: Final = 30.0
_PAGE: Final = 1_000
_LONGEST_ID: Final = 512
_OFFSET_BITS: Final = 48
_TRIES: Final = 5
_BAD_REQUEST: Final = 400
_CONFLICT: Final = 409
_TOO_LARGE: Final = 413
_TOO_MANY: Final = 429
_SERVER: Final = 500
_PASSING: Final = ("cluster_block_exception", "index_closed_exception")
"""The errors of an index that an operator has closed, or blocked for writes, and will open again."""
_KEYWORDS: Final = ("sink", "topic", "topic_id", "owner", "index")
_NUMBERS: Final = {"partition": "integer", "generation": "integer", "next_offset": "long", "epoch": "long"}
_POSITION_FIELDS: Final = {
    name: {"type": kind} for name, kind in {**dict.fromkeys(_KEYWORDS, "keyword"), **_NUMBERS}.items()
}
_SAME: Final = ("topic_id", "epoch", "owner", "generation", "index")
_HELD: Final = {"next_offset": "position", **{name: name for name in _SAME}}
_GENERATIONS: Final = SinkPartition("", "", "", 0)
"""The place of the last generation that any sink was given."""
_FIRST_GENERATION: Final = 1 << 10  # sinks once counted their own, from 1


@dataclass(frozen=True)
class HeldPosition(TargetPosition):
    """The document of a partition's position.

    Attributes:
        generation: Counts starts and resets: documents that follow one replace those before it, of any sink.
        index: The index that has the documents; "": not known.
        seq_no: Identifies this version of the document, with `primary_term`; -1: there is none.
    """

    generation: int = 0
    index: str = ""
    seq_no: int = -1
    primary_term: int = -1


class Elasticsearch(TargetOfOneSink):
    """An index of documents: the last change of each key, or each event by its partition and offset.

        Sink("stock-out", STOCK, Elasticsearch("http://127.0.0.1:9200", "stock"))

    The documents are the latest state: a batch may be visible in parts, and may be written twice, which changes nothing. A
    deleted document remembers its version for `index.gc_deletes`, an hour in an index that the sink has created.

    Args:
        urls: The URLs of one or more nodes.
        index: The index or alias. Created if it is missing, with dynamic fields.
        document: Makes a document of a record's key and value. Default: the fields of the value; `value` if it is no record.
        id: Makes the id of a document from a key. Default: a text as it is, other keys as JSON; a text that is JSON itself, too, if
            the codec has keys of several types. Of a stream each record has an id of its own.
        options: The client's options, such as `api_key`, `basic_auth`, `ca_certs`.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        index: str,
        *,
        document: Callable[[Any, Any], Mapping[str, Any]] | None = None,
        id: Callable[[Any], str] | None = None,  # noqa: A002 - its name in Elasticsearch
        options: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            nodes = [urls] if isinstance(urls, str) else list(urls)
            self._client = Client(nodes, max_retries=0, request_timeout=_TIMEOUT_S, **(options or {}))
        except (ValueError, TypeError) as error:
            raise ConfigurationError(f"not the address or options of an Elasticsearch: {error}") from error
        self._index, self._document = index, document
        self._given_id, self._id = id, id or str
        self._keyed, self._topic = True, ""
        self._generation = 0
        self._row_of: Callable[[Any], Any] = lambda value: value

    def open(self, source: SinkSource) -> None:
        self._keyed, self._topic, self._generation = source.is_table, source.topic, 0
        self._row_of = row_maker(source.value) or (lambda value: value)
        self._id = self._given_id or _ids_of(source.key)
        indices, fields = self._client.indices, _POSITION_FIELDS
        self._create(POSITIONS, {"mappings": {"dynamic": "strict", "properties": fields}})
        (there,) = self._asked(lambda: indices.get_mapping(index=POSITIONS)).values()
        new = {name: fields[name] for name in fields.keys() - there["mappings"].get("properties", {}).keys()}
        if new:
            self._asked(lambda: indices.put_mapping(index=POSITIONS, properties=new))
        if not self._asked(lambda: indices.exists(index=self._index)):
            self._forget()
            self._create(self._index, {"settings": {"index.gc_deletes": "1h"}})
        self._check()

    def take(self, place: SinkPartition, owner: str) -> TakenPartition:
        for _ in range(_TRIES):
            held = self._held(place)
            topic_id = held.topic_id or place.topic_id
            changes: Any = {"owner": owner, "topic_id": topic_id, "index": held.index or self._index}
            if self._put(place, held, replace(held, epoch=held.epoch + 1, **changes)):
                if held.index not in {self._index, ""}:
                    log.warning("sink has written another index", sink=place.sink, index=held.index)
                    held = replace(held, position=None)
                return TakenPartition(held.epoch + 1, held.position, held.topic_id, held.owner)
        raise RetryLater("another process changes the position at the same time")

    def write(self, place: SinkPartition, epoch: int, start: int | None, end: int, changes: Changes) -> None:
        held = self._held(place)
        held.check(epoch, start)
        moved = replace(held, position=end)
        if start is None:
            generation = self._new_generation(held.generation)
            moved = replace(moved, topic_id=place.topic_id, generation=generation, index=self._index)
        for at in range(0, len(changes), _PAGE):
            self._bulk(place, moved.generation, changes[at : at + _PAGE])
        if not self._put(place, held, moved):
            raise Migrated("another process has taken the partition during the write")

    def __repr__(self) -> str:
        return f"Elasticsearch({self._index!r})"

    def close(self) -> None:
        self._client.close()

    # ---- positions -------------------------------------------------------------------------------------------------

    def _held(self, place: SinkPartition) -> HeldPosition:
        try:
            found = self._asked(lambda: self._client.get(index=POSITIONS, id=_digest(place)))
        except NotFoundError:
            return HeldPosition()
        fields = {own: found["_source"][name] for name, own in _HELD.items() if name in found["_source"]}
        return HeldPosition(**fields, seq_no=found["_seq_no"], primary_term=found["_primary_term"])

    def _put(self, place: SinkPartition, before: HeldPosition, after: HeldPosition) -> bool:
        """Replace the document unless it has changed since it was read. Returns whether it did."""
        document = place._asdict() | {name: getattr(after, own) for name, own in _HELD.items()}
        there = {"if_seq_no": before.seq_no, "if_primary_term": before.primary_term}
        unchanged: Any = there if before.seq_no >= 0 else {"op_type": "create"}
        try:
            put, name = self._client.index, _digest(place)
            self._asked(lambda: put(index=POSITIONS, id=name, document=document, **unchanged))
        except ConflictError:
            return False
        return True

    def _new_generation(self, before: int) -> int:
        """Return a generation above all that were given before: one for the partitions that this process starts or resets.

        A sink with another name, or one of a topic that was created again, has low offsets, and its documents count all the same.
        """
        for _ in range(_TRIES):
            if self._generation > before:
                return self._generation
            last = self._held(_GENERATIONS)
            following = max(last.generation, before, _FIRST_GENERATION) + 1
            if self._put(_GENERATIONS, last, replace(last, generation=following)):
                self._generation = following
        raise RetryLater("other processes begin to write at the same time")

    def _forget(self) -> None:
        """Forget the positions in the index if that is gone: what was written up to them is gone, too."""
        client, asked = self._client, self._asked
        query: Any = {"query": {"term": {"index": self._index}}, "size": 10_000, "seq_no_primary_term": True}
        asked(lambda: client.indices.refresh(index=POSITIONS))
        held = asked(lambda: client.search(index=POSITIONS, **query))["hits"]["hits"]
        if not held or asked(lambda: client.indices.exists(index=self._index)):
            return  # another process has just created it, and may have written its first position
        operations: list[Mapping[str, Any]] = []
        for each in held:
            unchanged = {"if_seq_no": each["_seq_no"], "if_primary_term": each["_primary_term"]}
            operations += [{"update": {"_id": each["_id"], **unchanged}}, {"doc": {"next_offset": None}}]
        asked(lambda: client.bulk(index=POSITIONS, operations=operations))

    def _check(self) -> None:
        """Raise `ConfigurationError` if the name is of something in which documents cannot be replaced."""
        found = self._asked(lambda: self._client.indices.get(index=self._index)).values()
        writes = any(each["aliases"].get(self._index, {}).get("is_write_index") for each in found)
        what = (
            "a data stream, which takes no document twice" if "data_stream" in next(iter(found), {}) else ""
        )
        if len(found) > 1 and (self._keyed or not writes) and not what:
            what = f"an alias of {len(found)} indices, which have several documents of one key, or take none"
        if what:
            raise ConfigurationError(f"{self._index!r} is {what}: give the sink an index, or an alias of one")

    # ---- documents -------------------------------------------------------------------------------------------------

    def _bulk(self, place: SinkPartition, generation: int, changes: Changes) -> None:
        operations = [part for change in changes for part in self._operation(place, generation, change)]
        try:
            answer = self._asked(lambda: self._client.bulk(index=self._index, operations=operations))
        except ConfigurationError as error:
            if isinstance(error.__cause__, ApiError) and error.__cause__.status_code == _TOO_LARGE:
                raise Rejected(f"Elasticsearch refuses a request of this size: {error.message}") from error
            raise
        except RetryLater as error:
            if isinstance(error.__cause__, SerializationError):
                self._blame(place, generation, changes)
            raise
        if not answer["errors"]:
            return
        results = [next(iter(item.values())) for item in answer["items"]]
        for result, change in zip(results, changes, strict=True):
            if "error" in result and result["status"] != _CONFLICT:  # a conflict: a later change is there
                raise self._refusal(result["status"], result["error"], change)

    def _refusal(self, status: int, error: Mapping[str, Any], change: SinkChange) -> StreamtableError:
        """Return the error to raise for one of an item: only a bad request is the document's fault."""
        kind, text = error.get("type"), f"{error.get('type')}: {error.get('reason')}"
        if status == _TOO_MANY or status >= _SERVER or kind in _PASSING:
            return RetryLater(f"Elasticsearch cannot write at the moment: {text}")
        if status == _BAD_REQUEST:
            return Rejected(f"Elasticsearch refuses the document: {text}", offset=change.offset)
        return ConfigurationError(f"Elasticsearch refuses to write index {self._index!r}: {text}")

    def _blame(self, place: SinkPartition, generation: int, changes: Changes) -> None:
        """Refuse the first document that is no JSON: the client would fail at it again and again."""
        for change in changes:
            try:
                list(map(JsonSerializer().dumps, self._operation(place, generation, change)))
            except SerializationError as error:
                raise Rejected(f"the document cannot be sent: {error}", offset=change.offset) from error

    def _operation(
        self, place: SinkPartition, generation: int, change: SinkChange
    ) -> Iterator[Mapping[str, Any]]:
        try:
            name = self._id(change.key) if self._keyed else f"{self._topic}-{place.partition}-{change.offset}"
            if not name or len(name.encode()) > _LONGEST_ID:
                name = f"sha256-{sha256(name.encode()).hexdigest()}"
            document = None if change.value is None and self._keyed else self._made(change)
        except Exception as error:
            message = f"the document cannot be made: {type(error).__name__}: {error}"
            raise Rejected(message, offset=change.offset) from error
        version = (generation << _OFFSET_BITS) + change.offset
        action = {"_id": name, "version": version, "version_type": "external_gte"}
        yield {"delete" if document is None else "index": action}
        if document is not None:
            yield document

    def _made(self, change: SinkChange) -> Mapping[str, Any]:
        made = self._document(change.key, change.value) if self._document else self._row_of(change.value)
        found = converted(made, in_json)  # the client rounds decimals, and does not send bytes and times
        return found if isinstance(found, dict) else {"value": found}

    # ---- requests --------------------------------------------------------------------------------------------------

    def _create(self, index: str, body: Mapping[str, Any]) -> None:
        if not self._asked(lambda: self._client.indices.exists(index=index)):
            try:
                self._asked(lambda: self._client.indices.create(index=index, **body))
            except ConfigurationError as error:
                if "resource_already_exists" not in error.message:  # another process was quicker
                    raise

    @staticmethod
    def _asked(request: Callable[[], R]) -> R:
        """Send a request. Raises `RetryLater`, `ConfigurationError`, and for a document conflicts and absence."""
        try:
            return request()
        except (ConflictError, NotFoundError):
            raise
        except ApiError as error:
            if error.status_code == _TOO_MANY or error.status_code >= _SERVER:
                raise RetryLater(f"Elasticsearch cannot answer at the moment: {error}") from error
            raise ConfigurationError(f"Elasticsearch refuses the request: {error}") from error
        except TransportError as error:
            raise RetryLater(f"Elasticsearch does not answer: {error}") from error


def _ids_of(codec: Codec[Any]) -> Callable[[Any], str]:
    """Return the function that makes an id of a key: two for two keys that differ, and the same whatever their class is called."""
    plain: Callable[[Any], Any] = codec.plain if isinstance(codec, ShownValues) else lambda key: key
    if isinstance(inner := getattr(codec, "key", None), ShownValues):  # of windows
        plain = partial(_with_plain_key, inner.plain)
    tree = tree_of(codec)
    # A key of Connect has one type as well, or is a tuple.
    alike = hasattr(codec, "columns") if tree is None else "json" not in tree and not isinstance(tree, list)

    def made(key: Any) -> str:
        found = converted(plain(key), in_json)
        as_it_is = isinstance(found, str) and (alike or not _is_json(found))
        return str(found) if as_it_is else json.dumps(found, default=str, ensure_ascii=False)

    return made


def _with_plain_key(plain: Callable[[Any], Any], key: Any) -> Any:
    return plain(key[0]), *key[1:]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _digest(place: SinkPartition) -> str:
    return sha256("\0".join((place.sink, place.topic, str(place.partition))).encode()).hexdigest()
