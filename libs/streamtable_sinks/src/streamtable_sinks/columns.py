"""The columns of a codec's values, and the values as rows of them: the same for tables and files."""

from base64 import b64encode
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from copy import deepcopy
from datetime import date, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from streamtable import Avro, Bytes, Codec, Long, String
from streamtable.base.ports import ColumnValues, ShownValues, WindowedKeys
from streamtable.errors import ConfigurationError

_PLAIN: Final = ((String, "string"), (Long, "long"), (Bytes, "bytes"))


def tree_of(codec: Codec[Any]) -> Any:
    """Return the Avro schema of the values of a codec, parsed; None if their columns are not known."""
    if isinstance(codec, Avro):
        return codec.schema.tree
    if isinstance(codec, ColumnValues):
        return codec.columns
    return next((name for kind, name in _PLAIN if isinstance(codec, kind)), None)


def fields_of(codec: Codec[Any], single: str) -> Sequence[tuple[str, Any]] | None:
    """Return names and types of the columns of a codec's values; None if they are not known.

    Args:
        codec: The codec.
        single: The name of the column of a value that is not a record.
    """
    tree = tree_of(codec)
    if isinstance(tree, dict) and tree.get("type") == "record":
        return [(field["name"], field["type"]) for field in tree["fields"]]
    return None if tree is None else [(single, tree)]


def key_maker(codec: Codec[Any], names: Sequence[str]) -> Callable[[Any], Any] | None:
    """Return the function that makes a key as `tree_of` describes it; None: the codec's keys are so already.

    Args:
        codec: The codec.
        names: The key columns. A key that is a tuple whose parts the codec names, as of `ConnectKey`, is a tuple in their order.
    """
    if isinstance(codec, ColumnValues):
        row = codec.row
        return lambda key: None if key is None else row(key)
    own = tuple(getattr(codec, "columns", ()))
    if len(own) > 1 and sorted(own) == sorted(names):
        return lambda key: None if key is None else tuple(key[own.index(name)] for name in names)
    return None


def refuse_partial_key(codec: Codec[Any], names: Sequence[str]) -> None:
    """Raise `ConfigurationError` if the keys have fields that are no key columns: rows of several keys would be one."""
    fields, read = [name for name, _ in fields_of(codec, "") or ()], list(names)
    if isinstance(codec, WindowedKeys):
        window = ["key", "start_ms", "end_ms"]
        fields = (
            window[:2] if hasattr(codec, "end_of") else window
        )  # of a fixed length: the end follows from the start
        if len(names) == len(window):  # other names are read by their place
            read = [name if name in window else window[at] for at, name in enumerate(names)]
    lacking = [name for name in fields if name not in read]
    if lacking and {*read} <= {*fields, *(["end_ms"] if "start_ms" in fields else [])}:
        raise ConfigurationError(
            f"the key columns {list(names)} lack {lacking} of the keys: rows of several keys would be one row, and the "
            "deletion of one would delete it. Name all fields of the keys in key=, or give functions: "
            "key={'column': lambda key: ...}"
        )


def key_part(names: Sequence[str], name: str, key: Any) -> Any:
    """Return what a key column has of a key. Raises `TypeError` if the key does not have as many parts as there are columns."""
    if isinstance(key, dict):
        return key[name]
    if name in getattr(key, "_fields", ()):
        return getattr(key, name)
    parts = key if isinstance(key, tuple) else (key,)
    if len(parts) != len(names):
        raise TypeError(f"the key {key!r} has {len(parts)} parts, and the key columns are {list(names)}")
    return parts[names.index(name)]


def row_maker(
    codec: Codec[Any], columns: Container[str] = (), objects: Container[str] | None = None
) -> Callable[[Any], Mapping[str, Any]] | None:
    """Return the function that makes a row of a codec's value; None: a value is a row, or the column `value`.

    Args:
        codec: The codec.
        columns: The columns of the target; none: it takes all.
        objects: Those that can hold objects, where parts without a type of their own need not be JSON in a text; None: all.
    """
    tree = tree_of(codec)
    is_record = isinstance(tree, dict) and tree.get("type") == "record"
    if isinstance(codec, Avro) and not is_record:
        return lambda value: value if isinstance(value, dict) and "value" not in columns else {"value": value}
    if not isinstance(codec, ColumnValues) or not isinstance(codec, ShownValues):
        return None
    row, plain = codec.row, codec.plain
    if not is_record:
        loose = (objects is None or "value" in objects) and _has_json(tree)

        def single(value: Any) -> Mapping[str, Any]:
            if "value" not in columns and isinstance(whole := plain(value), dict):
                return whole  # its fields are not known from the codec, but to the target
            return {"value": _with_json(row(value), plain(value), tree) if loose else row(value)}

        return single
    own = {each["name"]: _has_json(each["type"]) for each in tree["fields"]}
    inside = [each for each in tree["fields"] if objects is None or each["name"] in objects]
    changed = {**tree, "fields": [each for each in inside if own[each["name"]]]}
    if not changed["fields"] and "open" not in tree:
        return row

    def whole(value: Any) -> Mapping[str, Any]:
        made = _with_json(row(value), plain(value), changed)
        # Of the fields that the schema does not name those that the target has.
        return {name: each for name, each in made.items() if columns == () or name in own or name in columns}

    return whole


def in_json(value: Any) -> Any:
    """Return bytes, dates, times, decimals and UUIDs as the texts that the JSON of typed values has, and others as they are."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | UUID) else value


def converted(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Return a value with a function applied to each of its parts that is no object and no array."""
    if isinstance(value, Mapping):
        return {name: converted(each, convert) for name, each in value.items()}
    if isinstance(value, list | tuple):
        made = [converted(each, convert) for each in value]
        return made if isinstance(value, list) else tuple(made)
    return convert(value)


def parts(tree: Any) -> Iterator[Any]:
    """Yield a type, and all types that it is made of."""
    yield tree
    inner: Sequence[Any] = tree if isinstance(tree, list) else ()
    if isinstance(tree, dict):
        inner = [*(each["type"] for each in tree.get("fields", ())), tree.get("items"), tree.get("values")]
    for each in inner:
        yield from parts(each)


def _has_json(tree: Any) -> bool:
    return any(isinstance(each, dict) and ("json" in each or "open" in each) for each in parts(tree))


def _with_json(made: Any, plain: Any, tree: Any) -> Any:
    """Return a value with the parts that are JSON in texts, and with fields that the tree lacks, as they are in the plain value."""
    if made is None or not _has_json(tree):
        return made
    if isinstance(tree, list):
        return _with_json(made, plain, tree[1])
    if "json" in tree:
        return plain
    if tree["type"] == "array":
        return [_with_json(one, other, tree["items"]) for one, other in zip(made, plain or (), strict=True)]
    given: Mapping[str, Any] = {str(name): each for name, each in (plain or {}).items()}
    if tree["type"] == "map":
        return {name: _with_json(each, given[name], tree["values"]) for name, each in made.items()}
    found = {**given, **made} if "open" in tree else dict(made)
    for each in tree["fields"]:
        other = given.get(each["name"], deepcopy(each.get("omitted")))
        found[each["name"]] = _with_json(made[each["name"]], other, each["type"])
    return found
