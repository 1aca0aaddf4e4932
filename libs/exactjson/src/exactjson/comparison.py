"""Whether one JSON schema accepts all that another one accepts, for schemas as msgspec and pydantic make them of types."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from exactjson.refining import NAMES
from exactjson.schemas import choices_of, literals_of, resolved

UNFILLED: Final = "unfilledDefaults"
"""In a schema: the values of fields that are missing are not filled in, so that another default changes no row."""
_LOWEST = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})
_HIGHEST = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})
_COMPARED = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "prefixItems"}
    | {"$ref", "$defs", "anyOf", "oneOf", "enum", "const", "default", NAMES, UNFILLED}
)
"""The parts of a schema that are compared otherwise than as a bound."""
# A default that a function makes is in no schema: beside one that is, it counts as another one.
_NONE = type("_NoDefault", (), {"__repr__": lambda _: "none, or made by a function"})()
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def unreadable(written: Mapping[str, Any], reading: Mapping[str, Any]) -> str:
    """Return why a schema does not accept all that another one accepts, with the place, as `$.items[].price`; "" if it does."""
    return _Comparison(written, reading).fault(written, reading, "$")


class _Comparison:
    """The comparison of the schema of written rows with the one that reads them."""

    def __init__(self, written: Mapping[str, Any], reading: Mapping[str, Any]) -> None:
        self._written, self._reading = written, reading
        # Pairs that are compared at the moment, or had no fault.
        self._compared: frozenset[tuple[str, str]] = frozenset()

    def fault(self, old: Any, new: Any, path: str) -> str:
        """Return the first fault; "" if there is none."""
        if old is False or new is True or new == {}:
            return ""
        if new is False:
            return f"{path}: no value is accepted any more"
        old = {} if old is True else old
        pair = old.get("$ref", ""), new.get("$ref", "")
        if pair in self._compared:
            return ""
        before = self._compared
        if all(pair):
            self._compared |= {pair}
        old, new = resolved(old, self._written), resolved(new, self._reading)
        found = next(filter(None, self._faults(old, new, path)), "")
        if found:
            self._compared = before
        return found

    def _faults(self, old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[str]:
        if alternatives := choices_of(old):
            yield from (self.fault(each, new, path) for each in alternatives)
        elif choices := choices_of(new):
            faults = [self.fault(old, each, path) for each in choices]
            yield "" if "" in faults else f"{path}: {_named(old)} is none of the types that are read"
        else:
            yield _value_fault(old, new, path)
            yield from _limit_faults(old, new, path)
            if "object" in _types(old):
                yield from self._field_faults(old, new, path)
            if "array" in _types(old):
                yield from self._item_faults(old, new, path)

    def _field_faults(self, old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[str]:
        required = old.get("required", ())
        for name in set(new.get("required", ())).difference(required):
            yield f"{path}.{name}: the field is required, and there are rows without it"
        fields, read = old.get("properties", {}), new.get("properties", {})
        others, rest = old.get("additionalProperties", not fields), new.get("additionalProperties", True)
        for name, each in fields.items():
            here = f"{path}.{name}"
            if name not in read and rest is False:
                yield f"{here}: the field was written, and unknown fields are refused"
            else:
                yield self.fault(each, read.get(name, rest), here)
                if name in read:
                    yield self._default_fault(each, read[name], here, required=name in required)
        yield self.fault(others, rest, f"{path}[]")
        yield from (self.fault(others, read[name], f"{path}.{name}") for name in read if name not in fields)

    def _item_faults(self, old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[str]:
        first, read = old.get("prefixItems", []), new.get("prefixItems", [])
        # Of an array with named fields no more than these were written.
        others, rest = old.get("items", NAMES not in old), new.get("items", True)
        names = list(old.get(NAMES, ()))
        for at, name in enumerate(new.get(NAMES, ())):
            if name in names and names.index(name) != at:
                yield f"{path}[{at}]: the field {name!r} was written at the place {names.index(name)}"
        for at in range(max(len(first), len(read))):
            here, there = first[at] if at < len(first) else others, read[at] if at < len(read) else rest
            yield self.fault(here, there, f"{path}[{at}]")
            if at < min(len(first), len(read)):
                yield self._default_fault(here, there, f"{path}[{at}]", required=at < old.get("minItems", 0))
        yield self.fault(others, rest, f"{path}[]")

    def _default_fault(self, old: Any, new: Any, path: str, *, required: bool) -> str:
        """Compare defaults: rows without the field would say something else without having been written."""
        was, now = (each.get("default", _NONE) if isinstance(each, Mapping) else _NONE for each in (old, new))
        if UNFILLED in self._reading or (required and _NONE in (was, now)) or _same(was, now):
            return ""
        return f"{path}: its default was {was!r} and is {now!r}, for rows without the field too"


def _value_fault(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> str:
    """Compare types, and values that are listed."""
    listed, accepted = literals_of(old), literals_of(new)
    if accepted is not None:
        for each in listed or []:
            if not any(_same(each, other) for other in accepted):
                return f"{path}: {each!r} is not among {accepted!r}"
        return f"{path}: {_named(old)} was written, and only {accepted!r} is read" if listed is None else ""
    if "contentEncoding" in old and "contentEncoding" not in new:
        return f"{path}: bytes in {old['contentEncoding']} were written, and {_named(new)} is read"
    wanted = _types(new)
    found = _types(old) or {_TYPES.get(type(each), "array") for each in listed or []}
    if wanted and not (found and found <= wanted | ({"integer"} if "number" in wanted else set())):
        return f"{path}: {_named(old)} was written, and {_named(new)} is read"
    return ""


def _limit_faults(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[str]:
    """Compare all else that a schema says of a value: bounds may only become wider."""
    for name, limit in new.items():
        before = old.get(name)
        if name in _COMPARED or before == limit:
            continue
        wider = (
            (name == "format" and limit in {f"any-{before}", str(before).replace("local-", "any-")})
            or (name in _LOWEST and before is not None and before >= limit)
            or (name in _HIGHEST and before is not None and before <= limit)
        )
        if not wider:
            yield f"{path}: {name} {limit!r} is new, and there may be rows that do not fit it"


def _same(one: Any, other: Any) -> bool:
    """Return whether two values of JSON are the same: True equals 1 in Python alone."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _types(schema: Mapping[str, Any]) -> set[str]:
    found = schema.get("type", ())
    return {found} if isinstance(found, str) else set(found)


def _named(schema: Mapping[str, Any]) -> str:
    return " or ".join(sorted(_types(schema))) or "any value"
