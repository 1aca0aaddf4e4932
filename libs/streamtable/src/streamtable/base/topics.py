"""Typed topics: a `Stream` of events, a `Table` of the latest value by key."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from streamtable.base.keys import canonical
from streamtable.base.no_key import NoKey
from streamtable.base.partitioner import Partitioner, hash_of, legal_partitioner
from streamtable.base.ports import Codec, TopicCodec, WindowedKeys
from streamtable.errors import GraphError

K = TypeVar("K")
V = TypeVar("V")

_LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}")  # Kafka's own rule
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000

TABLE_CONFIG: Mapping[str, str] = {
    "cleanup.policy": "compact",
    # An audit that reads the table as of a cut finds all its records for at least this long.
    "min.compaction.lag.ms": str(_HOUR_MS),
    # A replica that was away for longer has to be loaded again: it may have missed deletions.
    "delete.retention.ms": str(7 * _DAY_MS),
}
"""The settings of a topic that holds a table."""
DEAD_LETTER_CONFIG: Mapping[str, str] = {"retention.ms": str(30 * _DAY_MS)}
"""The settings of a topic of dead letters."""


def legal_codec(codec: object, argument: str, what: str) -> None:
    """Check that an argument is a codec. Raises `GraphError` for a class, a function, or anything else."""
    if isinstance(codec, type):
        raise GraphError(
            f"{what} has {argument}={codec.__name__}, which is a class: write {codec.__name__}() with its arguments"
        )
    if not (callable(getattr(codec, "encode", None)) and callable(getattr(codec, "decode", None))):
        raise GraphError(
            f"{what} has {argument}={codec!r}, which has no encode() and decode(): give a codec, such as String() or Json()"
            + ("; NoKey() for a stream without keys" if codec is None and argument == "key" else "")
        )


def legal_key(codec: object, what: str) -> None:
    """Check that an argument is a codec of keys, and not `NoKey`: every record or row has a key. Raises `GraphError`."""
    legal_codec(codec, "key", what)
    if isinstance(codec, NoKey):
        raise GraphError(f"{what} has key=NoKey(), but needs keys: only a Stream may have none")


def legal_name(name: Any, what: str) -> str:
    """Return the name if it is valid for a Kafka topic. Raises `GraphError` with the rule if not."""
    if not isinstance(name, str) or name in {".", ".."} or not _LEGAL.fullmatch(name):
        raise GraphError(
            f"{what} {name!r} cannot be a topic name: use 1 to 249 of the characters a-z A-Z 0-9 . _ - and neither '.' nor '..'"
        )
    return name


@dataclass(frozen=True)
class Stream(Generic[K, V]):
    """A topic of events. The key decides the partition.

    Args:
        name: The name of the topic.
        key: The codec of the keys; `NoKey()` if its records have no keys, or keys that mean nothing.
        value: The codec of the events.
        partitioner: The hash that assigns keys to partitions, the same for all writers of the topic: "murmur2" as
            Java's producer does, "fnv1a" as Goka and Sarama do, or "crc32" as librdkafka and confluent-kafka do by default. It must
            stay the same as long as there are rows of its keys: those that were made before are in other partitions, and are not
            found. This is not checked.
    """

    name: str
    key: Codec[K]
    value: Codec[V]
    partitioner: Partitioner = "murmur2"

    def __post_init__(self) -> None:
        legal_name(self.name, "stream")
        legal_codec(self.key, "key", f"stream {self.name!r}")
        legal_codec(self.value, "value", f"stream {self.name!r}")
        _for_topic(self)
        legal_partitioner(self.partitioner, f"stream {self.name!r}")

    @property
    def keyless(self) -> bool:
        """Whether its records have no keys, or keys that mean nothing."""
        return isinstance(self.key, NoKey)


@dataclass(frozen=True)
class Table(Generic[K, V]):
    """A compacted topic: the last value of each key counts, a null value deletes the key.

    Args:
        name: The name of the topic; a group's own table is the topic `<group>-table`, as in Goka.
        key: The codec of the keys.
        value: The codec of the rows.
        group: The group that keeps it, so that readers can wait for an event's effect (`View.wait_for`); "" if unknown.
        partitioner: The hash that assigns keys to partitions, the same for all writers of the topic; see `Stream`.
    """

    name: str
    key: Codec[K]
    value: Codec[V]
    group: str = ""
    partitioner: Partitioner = "murmur2"

    def __post_init__(self) -> None:
        legal_name(self.name, "table")
        legal_key(self.key, f"table {self.name!r}")
        legal_codec(self.value, "value", f"table {self.name!r}")
        _for_topic(self)
        legal_partitioner(self.partitioner, f"table {self.name!r}")


def _for_topic(topic: Stream[Any, Any] | Table[Any, Any]) -> None:
    """Replace the codecs of a new topic by those for its keys, and for its name."""
    key, value, name = canonical(topic.key), topic.value, topic.name
    object.__setattr__(topic, "key", key.for_topic(name, "key") if isinstance(key, TopicCodec) else key)
    object.__setattr__(
        topic, "value", value.for_topic(name, "value") if isinstance(value, TopicCodec) else value
    )


_INSTEAD = {
    "Stream": "read it by stream() of the flow, or by Input of a group",
    "Table": "read it by table() of the flow, or by Changes, Join or Lookup of a group; only the group that keeps it writes it",
    "KeyedStream": "of a stream, to_table(name) makes a table, and group_by_key() groups it; join() joins it with a stream",
    "KeyedTable": "of a table, to_stream() makes a stream of its changes; join_table() joins it with a stream, and "
    "join_global() one that is kept, by its .table",
    "WindowedTable": "of a windowed table, final() and changes() make streams",
    "GroupedStream": "give the stream itself, as it was before group_by_key()",
    "timedelta": "write Tumbling(size, grace=...) for windows of one size, and EventTime(idle_after=...) for event time",
}


def check_kind(given: Any, what: str, *kinds: type) -> None:
    """Check that an argument is of one of these kinds. Raises `GraphError` with the call to write instead."""
    if isinstance(given, kinds):
        return
    if isinstance(given, type):
        shown, instead = f"the class {given.__name__}", f"write {given.__name__}() with its arguments"
    else:
        name = type(given).__name__
        its_table = Table in kinds and hasattr(type(given), "table")
        shown, instead = f"a value of type {name}", "give its .table" if its_table else _INSTEAD.get(name, "")
    names = [f"an {kind.__name__}" if kind.__name__[0] in "AE" else f"a {kind.__name__}" for kind in kinds]
    raise GraphError(f"{what} takes {' or '.join(names)}, not {shown}" + (f": {instead}" if instead else ""))


def hash_of_rows(
    topic: Stream[Any, Any] | Table[Any, Any], partitioner: Partitioner | None = None
) -> Callable[[bytes], int]:
    """Return the hash that decides the partition of an encoded key: windows are where the records of their key are.

    Args:
        topic: The topic.
        partitioner: Another partitioner than its own.
    """
    return _hash_without_windows(topic.key, hash_of(partitioner or topic.partitioner))


def _hash_without_windows(codec: object, hash_key: Callable[[bytes], int]) -> Callable[[bytes], int]:
    if not isinstance(codec, WindowedKeys):
        return hash_key
    # The key may have a window of its own, as in a window over the rows of windows.
    inner, hash_inner = codec.inner, _hash_without_windows(getattr(codec, "key", None), hash_key)
    return lambda data: hash_inner(inner(data))
