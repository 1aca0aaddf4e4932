"""JSON of a type, by msgspec or pydantic: functions that read and write it, and its schema."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Generic, TypeVar, cast, get_args, get_origin

import msgspec
from msgspec import inspect

from exactjson.losses import lost, mixed, zoned
from exactjson.names import masked, one_way
from exactjson.refining import refine
from exactjson.schemas import bare, choices_of, closed, unknown_field

T = TypeVar("T")

_TIME = re.compile(rb"T\d\d:\d\d:")
_PLACE = re.compile(r"(?s)(.*?)(?: - at `(?:(key)` in `)?\$(.*)`)?")


class Unsuitable(ValueError):
    """JSON cannot be checked against a type."""


@dataclass(frozen=True, slots=True)
class Checked(Generic[T]):
    """JSON of a type.

    Attributes:
        title: The name of the type.
        read: Decodes JSON and checks it. Raises any exception for a text that does not fit; `fault` describes it.
        write: Encodes a value. Its types are not checked: values are as a program has made them.
        plain: Converts a value to dicts, lists and the like, with the names that the JSON has.
        schema: The JSON schema of the type, without the parts that are for people, and with additions for comparisons.
        document: The JSON schema of the type as its library makes it.
        mixed: Whether values that are equal may differ.
        omits: Whether the encoder omits fields that have their default.
    """

    title: str
    read: Callable[[bytes], T]
    write: Callable[[T], bytes]
    plain: Callable[[T], Any]
    schema: Mapping[str, Any]
    document: Mapping[str, Any]
    mixed: bool = False
    omits: bool = False

    def write_checked(self, value: T, *, row: bool = False) -> bytes:
        """Encode a value. Raises any exception for one that would not be read again, or as another one, or that holds NaN.

        Args:
            value: The value.
            row: Whether it is kept in memory as the program has made it, in the place of the one that is read: then neither a
                tuple is taken for a list, nor a datetime of a zone whose offset varies for one with the offset.
        """
        data = self.write(value)
        again = self.read(data)
        if b"null" in data and not finite(self.plain(value)):  # what NaN is written as
            raise ValueError("NaN and infinity are no JSON numbers")
        # Most rows have no time, and are spared the walk.
        reason = zoned(value) if row and _TIME.search(data) else ""
        if reason or ((self.mixed or value != again) and (reason := lost(value, again, rows=row))):
            raise ValueError(reason)
        return data


def checked(kind: Any, *, strict: bool = False, sort_keys: bool = False) -> Checked[Any]:
    """Return the JSON of a type: a struct, a dataclass, a `TypedDict`, a model of pydantic, or a type made of them.

    Args:
        kind: The type.
        strict: Whether fields that the type does not have are refused, which costs a second look at each text.
        sort_keys: Whether the names of dicts are sorted when they are written.

    Raises:
        Unsuitable: JSON cannot be checked against the type.
    """
    title = _title_of(kind)
    try:
        made = (
            _by_pydantic(kind, title, strict=strict)
            if _has_models(kind)
            else _by_msgspec(kind, title, sort_keys=sort_keys)
        )
    except Exception as error:
        message = str(error).partition("\n")[0]
        raise Unsuitable(f"JSON cannot be checked against {title}: {message}") from error
    if not strict:
        return made
    schema = closed(made.schema)

    def read(data: bytes) -> Any:
        value = made.read(data)
        if unknown := unknown_field(json.loads(data), schema, schema):
            raise msgspec.ValidationError(f"unknown field - at `{unknown}`")
        return value

    return replace(made, read=read, schema=schema)


def fault(error: Exception) -> str:
    """Return the fault of JSON, after its place: `$.items[2].price: expected float, got str`."""
    if type(error).__module__.startswith("pydantic") and hasattr(error, "errors"):
        first, *more = cast("Any", error).errors(include_url=False, include_input=False)
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        others = f" (and {len(more)} more)" if more else ""
        return f"${place}: {_lowered(first['msg'])}{others}"
    if isinstance(error, RecursionError):
        return "nested too deep"
    if not isinstance(error, msgspec.ValidationError):
        return str(error) or type(error).__name__
    found = _PLACE.fullmatch(str(error))
    assert found is not None, "the pattern matches any text"
    what, key, place = found.groups()
    return f"${place or ''}: {'a key: ' if key else ''}{_lowered(what)}".replace("`", "")


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def _by_msgspec(kind: Any, title: str, *, sort_keys: bool) -> Checked[Any]:
    made, schema = msgspec.json.schema(kind), msgspec.json.schema(kind)
    parts = refine(kind, schema, names=not sort_keys)
    # A set has no order of its own, and another one in each process: rows that are equal are told by their bytes.
    unordered = any(isinstance(part, inspect.SetType | inspect.FrozenSetType) for part in parts)
    write = msgspec.json.Encoder(order="deterministic" if sort_keys or unordered else None).encode
    read = msgspec.json.Decoder(kind).decode
    structs = [get_origin(part.cls) or part.cls for part in parts if isinstance(part, inspect.StructType)]
    omits = any(each.__struct_config__.omit_defaults for each in structs)
    return Checked(title, read, write, msgspec.to_builtins, bare(schema), made, omits=omits)


def _by_pydantic(kind: Any, title: str, *, strict: bool) -> Checked[Any]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - only for those who use its models
    from pydantic.json_schema import GenerateJsonSchema  # noqa: PLC0415 - the same

    class WithKeys(GenerateJsonSchema):
        """Says the type of keys too, and of which texts a decimal is made."""

        def dict_schema(self, schema: Any) -> dict[str, Any]:
            made = super().dict_schema(schema)
            keys = self.generate_inner(schema["keys_schema"]) if "keys_schema" in schema else {}
            named = {} if keys in ({}, {"type": "string"}) else {"propertyNames": {"const": repr(keys)}}
            return {**made, **named}

        def decimal_schema(self, schema: Any) -> dict[str, Any]:
            texts = {"format": "decimal"}
            made = choices_of(super().decimal_schema(schema))
            return {"anyOf": [each | (texts if each["type"] == "string" else {}) for each in made]}

    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    for wrong in one_way(adapter.core_schema, strict=strict):
        raise Unsuitable(wrong)
    if masked(adapter.core_schema):
        raise Unsuitable("a secret is written as asterisks: give its field a `field_serializer`")
    return Checked(
        title,
        adapter.validate_json,
        lambda value: adapter.dump_json(value, by_alias=True, warnings=False),
        lambda value: adapter.dump_python(value, mode="json", by_alias=True, warnings=False),
        bare(adapter.json_schema(schema_generator=WithKeys)),
        adapter.json_schema(),
        mixed(adapter.core_schema),
    )


def _has_models(kind: Any) -> bool:
    """Return whether a type is a model of pydantic, or made of them."""
    return hasattr(kind, "__pydantic_core_schema__") or any(map(_has_models, get_args(kind)))


def _title_of(kind: Any) -> str:
    if get_origin(kind) is None and hasattr(kind, "__name__"):
        return str(kind.__name__)
    return re.sub(r"\b(?:\w+\.)+", "", str(kind))


def finite(value: Any) -> bool:
    """Return whether a value made of dicts, lists and the like has neither NaN nor infinity."""
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, Mapping):
        return all(map(finite, value.values()))
    return not isinstance(value, list | tuple | set | frozenset) or all(map(finite, value))
