"""Whether the fields of pydantic's models are read by the names they are written by, looked up in its core schema."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

_FIELDS: Final = frozenset({"model-fields", "dataclass-args", "typed-dict"})
NO_TYPES: Final = frozenset({"metadata", "default", "serialization", "cls", "computed_fields"})
"""The entries of a core schema that hold no further core schemas."""


def one_way(schema: Any, *, strict: bool = False, config: Mapping[str, Any] | None = None) -> Iterator[str]:
    """Yield each field that would not come back from the written form, with the reason and the remedy.

    Args:
        schema: A core schema, or a part of one.
        strict: Whether unknown fields are refused.
        config: The settings of the model around the part.
    """
    if isinstance(schema, list | tuple):
        for each in schema:
            yield from one_way(each, strict=strict, config=config)
    elif isinstance(schema, Mapping):
        given = schema.get("config")
        config = given if isinstance(given, Mapping) else config or {}
        if schema.get("type") in _FIELDS:
            yield from _of_fields(schema, config, strict=strict)
        for name, each in schema.items():
            if name not in NO_TYPES:
                yield from one_way(each, strict=strict, config=config)


def masked(schema: Any) -> bool:
    """Return whether a part of a core schema is a secret of pydantic without a serializer of the model's own."""
    if isinstance(schema, list | tuple):
        return any(map(masked, schema))
    if not isinstance(schema, Mapping):
        return False
    function = (schema.get("serialization") or {}).get("function")
    if function is not None:
        return function.__module__ == "pydantic.types" and "secret" in function.__name__
    return any(masked(each) for name, each in schema.items() if name not in NO_TYPES)


def _of_fields(schema: Mapping[str, Any], config: Mapping[str, Any], *, strict: bool) -> Iterator[str]:
    """Yield the faults of the fields of one model, dataclass or TypedDict."""
    owner = (
        schema.get("model_name") or schema.get("dataclass_name") or getattr(schema.get("cls"), "__name__", "")
    )
    listed = schema["fields"]
    fields = dict(listed) if isinstance(listed, Mapping) else {each["name"]: each for each in listed}
    computed = schema.get("computed_fields") or ()
    written = [
        *(_written(name, field) for name, field in fields.items() if not _unwritten(field)),
        *(each.get("alias", each["property_name"]) for each in computed),
    ]
    for name, field in fields.items():
        where, own = f"{owner}.{name}", _written(name, field)
        read = _read(name, field, config)
        first = next((path for path in read if path[0] in written), None)
        if _unwritten(field):
            required = field["schema"]["type"] != "default" and field.get("required", True)
            if required or first is not None:
                yield f"{where} is read and never written: give it a default and a name that no other field has"
        elif field.get("init") is False:
            yield f"{where} is written and never read: remove `init=False`, or make it a property"
        elif first != [own]:
            names = "', '".join(str(path[0]) if len(path) == 1 else str(path) for path in read)
            yield f"{where} is read as '{names}' and written as '{own}': give it `alias`, which is both"
        elif written.count(own) > 1:
            yield f"{where} is written as '{own}', and so is another field: give each a name of its own"
        elif strict and own != _documented(name, field):
            yield f"{where} is written as '{own}', which `strict` refuses: give it `alias`, which is read first"
    extra = schema.get("extra_behavior") or config.get("extra_fields_behavior") or "ignore"
    if computed and (strict or extra != "ignore"):
        yield (
            f"{owner}.{computed[0]['property_name']} is computed: it is written, and read as an unknown field. "
            "Ignore unknown fields (no `strict`, `extra` or `forbid`), or make it a property alone"
        )


def _written(name: str, field: Mapping[str, Any]) -> str:
    return str(field.get("serialization_alias", name))


def _unwritten(field: Mapping[str, Any]) -> bool:
    return bool(field.get("serialization_exclude") or field.get("init_only"))


def _read(name: str, field: Mapping[str, Any], config: Mapping[str, Any]) -> list[list[Any]]:
    """Return the places from which a field is read, in their order, each a name and what is inside of it."""
    alias = field.get("validation_alias")
    if alias is None:
        return [[name]]
    paths = _paths(alias)
    by_name = config.get("validate_by_name") or config.get("populate_by_name")
    return [*(paths if config.get("validate_by_alias", True) else ()), *([[name]] if by_name else ())]


def _paths(alias: Any) -> list[list[Any]]:
    return [[alias]] if isinstance(alias, str) else [alias] if isinstance(alias[0], str) else list(alias)


def _documented(name: str, field: Mapping[str, Any]) -> str:
    """Return the name of a field in the JSON schema, which is the only one that `strict` knows."""
    alias = field.get("validation_alias")
    return next((str(path[0]) for path in _paths(alias) if len(path) == 1), name) if alias else name
