"""Schema resolution: readers of data written with one schema into values of another."""

from collections.abc import Callable
from functools import partial
from typing import Any

from exactavro.branches import avro_branch, full_names, has_name, is_ambiguous
from exactavro.defaults import default_value, narrow
from exactavro.errors import Unusable
from exactavro.logical import conversion
from exactavro.reading import (
    PRIMITIVES,
    Blocks,
    Reader,
    array_reader,
    converting,
    enum_reader,
    fixed_reader,
    map_reader,
    projecting,
    record_reader,
    union_reader,
)
from exactavro.schema import Node, Schema, kind, logical, measure, simple_name, title

_PROMOTIONS: dict[tuple[str, str], Callable[[Any], Any] | None] = {
    ("int", "long"): None,
    ("int", "float"): narrow,
    ("int", "double"): float,
    ("long", "float"): narrow,
    ("long", "double"): float,
    ("float", "double"): None,
    ("string", "bytes"): str.encode,
    ("bytes", "string"): bytes.decode,
}


def make_reader(writer: Schema, reader: Schema | None = None, *, whole: bool = False) -> Reader:
    """Return a reader, for `decode`, of data written with `writer` into values of `reader` (default: the same schema).

    Fields and types are matched by name or by the reader's aliases, and numbers are widened. Fields that the writer
    lacks get their defaults; fields that the reader lacks are checked and dropped.

    Args:
        writer: The schema of the data.
        reader: The schema of the values.
        whole: Whether each branch of a union and each symbol of an enum must be readable, and not only one of them.

    Raises:
        Unusable: No data of the writer can be read with the reader, or with `whole` not all of it; the message names the place
            and both types.
    """
    return _reader(writer.tree, (reader or writer).tree, whole=whole)


def _reader(writer: Node, reader: Node, *, whole: bool) -> Reader:
    if isinstance(writer, list):
        return _of_union(writer, reader, whole=whole)
    if isinstance(reader, list):
        return _first_match(writer, reader, whole=whole)
    read = _carrier(writer, reader, whole=whole)
    reader_type = conversion(reader)
    if logical(writer) and logical(reader) and _logical_facts(writer) != _logical_facts(reader):
        raise Unusable(f"{logical(writer)} cannot be read as {logical(reader)}")
    if whole and _reads_part(writer, reader):
        raise Unusable(
            f"not every {logical(writer) or title(writer)} can be read as {logical(reader) or title(reader)}"
        )
    return read if reader_type is None else converting(read, reader_type.load)


def _reads_part(writer: Node, reader: Node) -> bool:
    """Return whether values of a reader's primitive or logical type are only some of the writer's values."""
    name = logical(reader) if conversion(reader) is not None else None
    if name == "decimal" and isinstance(reader, dict):
        written = (
            writer.get("precision") if isinstance(writer, dict) and logical(writer) == "decimal" else None
        )
        return written is None or written > reader["precision"]
    if name in {"uuid", "time-millis", "time-micros"}:
        return logical(writer) != name
    return (kind(writer), kind(reader)) == ("bytes", "string")


def _logical_facts(node: Node) -> Any:
    return logical(node), isinstance(node, dict) and node.get("scale", 0)


def _carrier(writer: Node, reader: Node, *, whole: bool) -> Reader:
    """Return the reader without the conversion of logical types."""
    writer_type, reader_type = kind(writer), kind(reader)
    if writer_type != reader_type:
        if (writer_type, reader_type) in _PROMOTIONS:
            convert = _PROMOTIONS[writer_type, reader_type]
            return (
                PRIMITIVES[writer_type] if convert is None else converting(PRIMITIVES[writer_type], convert)
            )
    elif writer_type in PRIMITIVES:
        return PRIMITIVES[writer_type]
    elif isinstance(writer, dict) and isinstance(reader, dict):
        if "name" in writer and simple_name(writer) not in _names(reader):
            raise Unusable(f"{writer['name']} is not {reader['name']}, and none of its aliases")
        if writer_type in {"array", "map"}:
            part, make = ("items", array_reader) if writer_type == "array" else ("values", map_reader)
            blocks = Blocks(measure(writer[part]).width, measure(reader[part]).nodes)
            return make(_reader(writer[part], reader[part], whole=whole), blocks)
        if writer_type == "record":
            return _of_record(writer, reader, whole=whole)
        if writer_type == "enum":
            return _of_enum(writer["symbols"], reader, whole=whole)
        if writer["size"] == reader["size"]:
            return fixed_reader(writer["size"])
    raise Unusable(f"{title(writer)} cannot be read as {title(reader)}")


def _names(reader: dict[str, Any]) -> set[str]:
    """Return the names without namespaces, as the specification compares them."""
    return {simple_name(reader), *(alias.rpartition(".")[2] for alias in reader.get("aliases", ()))}


def _of_record(writer: dict[str, Any], reader: dict[str, Any], *, whole: bool) -> Reader:
    written = {field["name"] for field in writer["fields"]}
    targets, missing = {}, []
    for field in reader["fields"]:  # its own name comes first, then its aliases in order
        source = next((word for word in (field["name"], *field.get("aliases", ())) if word in written), None)
        if source is None:
            missing.append(field)
        else:
            targets[source] = field
    fields: list[tuple[str, Reader]] = []
    defaults = {}
    name = ""
    try:
        for field in writer["fields"]:
            target = targets.get(field["name"], field)
            name = target["name"]
            fields.append((name, _reader(field["type"], target["type"], whole=whole)))
        for field in missing:
            name = field["name"]
            if "default" not in field:
                raise Unusable("not in the writer's schema, and has no default")
            defaults[name] = default_value(field["type"], field["default"])
    except Unusable as error:
        raise Unusable(f"{simple_name(reader)}.{name}: {error}") from None
    read = record_reader(fields)
    dropped = written - targets.keys()  # no field of the reader is read from these
    return projecting(read, dropped, defaults) if dropped or defaults else read


def _of_enum(symbols: list[str], reader: dict[str, Any], *, whole: bool) -> Reader:
    known = set(reader["symbols"])
    fallback = reader.get("default")
    table = [symbol if symbol in known else fallback for symbol in symbols]
    if not any(table):
        raise Unusable(f"enum {reader['name']}: no symbol in common")
    if whole and None in table:
        raise Unusable(
            f"enum {reader['name']}: {symbols[table.index(None)]!r} is none of its symbols, and it has no default"
        )
    return enum_reader(symbols, table)


def _of_union(branches: list[Node], reader: Node, *, whole: bool) -> Reader:
    readers: list[Reader | str] = []
    for branch in branches:
        try:
            readers.append(_reader(branch, reader, whole=whole))
        except Unusable as error:
            if whole:
                raise
            readers.append(str(error))  # only records that use this branch are malformed
    if all(isinstance(read, str) for read in readers):
        raise Unusable(f"no branch can be read: {'; '.join(map(str, readers))}")
    return union_reader(readers)


def _first_match(writer: Node, branches: list[Node], *, whole: bool) -> Reader:
    """Return the reader of the branch of the same type and full name, else of the first one that fits best."""
    for branch in sorted(branches, key=lambda each: _distance(writer, each)):
        try:
            read = _reader(writer, branch, whole=False)
        except Unusable:
            continue
        if whole:  # this branch is the one that reads it, whether another one would read more of it or not
            _reader(writer, branch, whole=True)
        if not is_ambiguous(branch, branches):
            return read
        return converting(read, partial(avro_branch, full_names(branch)[0]))
    raise Unusable(f"{title(writer)} cannot be read as any of {', '.join(map(title, branches))}")


def _distance(writer: Node, branch: Node) -> int:
    """Return how far a branch of the reader is from the writer's type: the full name comes first, then an alias, then the kind."""
    if kind(branch) != kind(writer):
        return 5
    if logical(branch) != logical(writer):
        return 4
    if not has_name(writer):
        return 0
    own, *aliases = full_names(branch)
    wanted = full_names(writer)[0]
    if wanted == own:
        return 0
    if wanted in aliases:
        return 1
    return 2 if wanted.rpartition(".")[2] == own.rpartition(".")[2] else 3
