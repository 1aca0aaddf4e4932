"""Keys: one form for equal keys, their order in ranges, and records as keys of results."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from streamtable.base.ports import CanonicalKeys, Codec, OrderedKeys, Span, VersionedKeys, WindowedKeys
from streamtable.errors import GraphError

K = TypeVar("K")


class RecordKey(dict[Any, Any]):
    """A key that is a record or a map, in a result by key: a dict that can be looked up. Do not change it."""

    def __hash__(self) -> int:  # type: ignore[override] # a dict has none
        return hash(frozenset((name, as_key(value)) for name, value in self.items()))


class ListKey(list[Any]):
    """A key that is an array, in a result by key: a list that can be looked up. Do not change it."""

    def __hash__(self) -> int:  # type: ignore[override] # a list has none
        return hash(tuple(map(as_key, self)))


def as_key(value: Any) -> Any:
    """Return a key in a hashable form, which can be looked up in a dict. It equals the key."""
    kind = type(value)
    if kind is dict:
        return RecordKey(value)
    if kind is list:
        return ListKey(value)
    # A key in a window: its first field is the key.
    return value._make((as_key(value[0]), *value[1:])) if hasattr(kind, "_make") else value


def encoded_keys(codec: Codec[K], keys: Iterable[K]) -> dict[K, bytes]:
    """Return the encoded keys by key, in a form that can be looked up.

    Raises:
        ValueError: Two keys are equal in Python, and different keys of the table: a result could hold one of them only.
    """
    keys = list(keys)
    encoded = list(zip(map(as_key, keys), map(codec.encode, keys), strict=True))
    found = dict(encoded)
    for key, data in encoded:
        if found[key] != data:
            raise ValueError(f"{key!r} equals another key in Python, not in {codec!r}: ask for each alone")
    return found


def canonical(codec: Codec[K]) -> Codec[K]:
    """Return the codec that encodes equal keys as the same bytes."""
    return codec.for_keys() if isinstance(codec, CanonicalKeys) else codec


def form_of(codec: Codec[Any]) -> str:
    """Return what the bytes of a key depend on beside its value, such as a schema: a codec's `key_form`, if it has one.

    Equal keys of two codecs have different bytes if this differs.
    """
    return repr(codec) if isinstance(codec, WindowedKeys) else str(getattr(codec, "key_form", ""))


def spans_of(codec: Codec[K], start: K | None, end: K | None, topic: str) -> Sequence[Span]:
    """Return the spans of encoded keys that hold the keys from `start` up to `end`. See `ports.OrderedKeys`.

    Raises:
        GraphError: The encoded keys are in no order that a range could follow.
    """
    if isinstance(codec, OrderedKeys):
        return codec.spans(start, end)
    if start is None and end is None:
        return [(None, None)]
    raise GraphError(
        f"the keys of {topic!r} have no order that a range could follow: {codec!r} encodes keys in another order than "
        "their values have. Read all rows and filter them, or use String(), Bytes() or Long() keys, or a codec with spans()"
    )


def prefix_span(codec: Codec[K], prefix: K, topic: str) -> tuple[bytes, bytes | None]:
    """Return the span of the encoded keys that begin with an encoded key.

    Raises:
        GraphError: An encoded key of this codec says how long it is, or where it ends, so no other key begins with it.
    """
    if isinstance(codec, CanonicalKeys | VersionedKeys):
        raise GraphError(
            f"no key of {topic!r} begins with another one, as {codec!r} encodes them: read all rows and filter them, or use "
            "keys of String(), of Bytes(), or of a codec whose encoded keys begin with their first part"
        )
    start = codec.encode(prefix)
    return start, after_prefix(start)


def after_prefix(prefix: bytes) -> bytes | None:
    """Return the first key behind all that begin with this prefix; None if there is none behind them."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
