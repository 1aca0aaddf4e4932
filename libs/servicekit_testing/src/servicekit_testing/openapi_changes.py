"""Detects changes of an OpenAPI document that break clients of an older one.

A valid request must stay valid, and a response must stay understandable: request schemas may only be widened, response
schemas only narrowed or extended by members that clients ignore. It compares the features of OpenAPI that the services
here use (JSON bodies, `$ref`, `anyOf`, `allOf`); a change that it cannot judge is reported.
"""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

Document = Mapping[str, Any]
_METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_LOWER: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems")
_UPPER: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems")
_EXACT: Final = ("format", "pattern", "const", "multipleOf", "additionalProperties")


def breaking_changes(old: Document, new: Document) -> list[str]:
    """Return the changes that break clients of the old document, each with its place; empty if there are none."""
    return list(_Comparison(old, new).changes())


class _Comparison:
    def __init__(self, old: Document, new: Document) -> None:
        self._old = old
        self._new = new

    def changes(self) -> Iterator[str]:
        for path, methods in self._old.get("paths", {}).items():
            for method in (name for name in _METHODS if name in methods):
                where = f"{method.upper()} {path}"
                found = self._new.get("paths", {}).get(path, {}).get(method)
                if found is None:
                    yield f"{where}: it is gone"
                else:
                    yield from self._operation(where, methods[method], found)

    def _operation(self, where: str, old: Document, new: Document) -> Iterator[str]:
        if old.get("operationId") != new.get("operationId"):
            yield f"{where}: its operationId has changed, from which generated clients take their names"
        if old.get("security", [{}]) != new.get("security", [{}]):
            yield f"{where}: it requires other credentials"
        yield from self._parameters(where, old, new)
        yield from self._body(f"{where} body", old.get("requestBody"), new.get("requestBody"))
        yield from self._responses(where, old["responses"], new["responses"])

    def _parameters(self, where: str, old: Document, new: Document) -> Iterator[str]:
        before = {(p["in"], p["name"]): p for p in old.get("parameters", [])}
        after = {(p["in"], p["name"]): p for p in new.get("parameters", [])}
        for key, parameter in before.items():
            place = f"{where} {key[0]} parameter {key[1]}"
            if key not in after:
                yield f"{place}: it is gone"
                continue
            yield from self._taken(place, parameter.get("schema", {}), after[key].get("schema", {}))
        for key, parameter in after.items():
            must = parameter.get("required", False)
            if must and not before.get(key, {}).get("required", False):
                yield f"{where} {key[0]} parameter {key[1]}: it has become required"

    def _body(self, where: str, old: Document | None, new: Document | None) -> Iterator[str]:
        if new is None:
            if old is not None:
                yield f"{where}: it is gone"
            return
        if new.get("required", False) and not (old or {}).get("required", False):
            yield f"{where}: it has become required"
        for media_type, content in (old or {}).get("content", {}).items():
            if media_type not in new["content"]:
                yield f"{where}: {media_type} is no longer accepted"
            else:
                yield from self._taken(where, content.get("schema", {}), new["content"][media_type]["schema"])

    def _responses(self, where: str, old: Document, new: Document) -> Iterator[str]:
        for status, response in old.items():
            if status not in new:
                if int(status) < HTTPStatus.BAD_REQUEST:
                    yield f"{where} {status}: it is gone"
                continue
            for media_type, content in response.get("content", {}).items():
                after = new[status].get("content", {}).get(media_type)
                if after is None:
                    yield f"{where} {status}: it is no longer answered as {media_type}"
                else:
                    place = f"{where} {status}"
                    yield from self._given(place, content.get("schema", {}), after.get("schema", {}))
        for status in new.keys() - old.keys():
            if int(status) < HTTPStatus.BAD_REQUEST:
                yield f"{where} {status}: it is a response that clients do not know"

    # Both directions use one relation: the wide schema must allow all that the narrow one does. Responses may have
    # additional members, which clients ignore; requests must not require new ones.

    def _taken(self, where: str, old: Document, new: Document) -> Iterator[str]:
        """Check that every request that was valid is still valid."""
        yield from _Containment(self._old, self._new, given=False).compare(where, old, new, ())

    def _given(self, where: str, old: Document, new: Document) -> Iterator[str]:
        """Check that every response that is possible now was possible before."""
        yield from _Containment(self._new, self._old, given=True).compare(where, new, old, ())


class _Containment:
    """Compares a narrower schema with a wider one, which must allow all that the narrower one does."""

    def __init__(self, narrow: Document, wide: Document, *, given: bool) -> None:
        self._narrow_document = narrow
        self._wide_document = wide
        self._given = given

    def compare(
        self, where: str, narrow: Document, wide: Document, seen: tuple[tuple[str, str], ...]
    ) -> Iterator[str]:
        refs = (str(narrow.get("$ref")), str(wide.get("$ref")))
        if refs[0] != "None" and refs in seen:
            return  # a recursive schema
        seen = (*seen, refs)
        narrow, wide = _resolved(self._narrow_document, narrow), _resolved(self._wide_document, wide)
        if not wide:
            return
        choices = _choices(narrow)
        wide_choices = _choices(wide)
        if len(choices) > 1 or len(wide_choices) > 1:
            for number, choice in enumerate(choices):
                fits = (
                    next(self.compare(where, choice, other, seen), None) is None for other in wide_choices
                )
                if not any(fits):
                    yield f"{where}: alternative {number + 1} of {self._side} has no counterpart"
            return
        yield from self._values(where, narrow, wide)
        yield from self._members(where, narrow, wide, seen)
        if "items" in wide:
            yield from self.compare(f"{where}[]", narrow.get("items", {}), wide["items"], seen)

    @property
    def _side(self) -> str:
        return "the new response" if self._given else "the old request"

    def _values(self, where: str, narrow: Document, wide: Document) -> Iterator[str]:
        types, wide_types = _types(narrow), _types(wide)
        if not types <= wide_types:
            yield f"{where}: the type was {self._order(types, wide_types)}"
        values, wide_values = narrow.get("enum"), wide.get("enum")
        if wide_values is not None and (
            values is None or not set(map(repr, values)) <= set(map(repr, wide_values))
        ):
            yield f"{where}: other values are allowed"
        for names, sign in ((_LOWER, 1), (_UPPER, -1)):
            for name in (name for name in names if name in wide):
                if name not in narrow or (narrow[name] - wide[name]) * sign < 0:
                    yield f"{where}: {name} was {self._order(narrow.get(name), wide[name])}"
        for name in _EXACT:
            if name in wide and wide[name] is not True and narrow.get(name) != wide[name]:
                yield f"{where}: {name} was {self._order(narrow.get(name), wide[name])}"

    def _members(
        self, where: str, narrow: Document, wide: Document, seen: tuple[tuple[str, str], ...]
    ) -> Iterator[str]:
        members, wide_members = narrow.get("properties", {}), wide.get("properties", {})
        for name in set(wide.get("required", ())) - set(narrow.get("required", ())):
            said = "is no longer always there" if self._given else "has become required"
            yield f"{where}.{name}: it {said}"
        for name, schema in members.items():
            if name in wide_members:
                yield from self.compare(f"{where}.{name}", schema, wide_members[name], seen)
            elif not self._given:
                yield f"{where}.{name}: it is gone"
        if self._given:
            for name in wide_members.keys() - members.keys():
                yield f"{where}.{name}: it is gone"

    def _order(self, narrow: object, wide: object) -> str:
        before, after = (wide, narrow) if self._given else (narrow, wide)
        return f"{_shown(before)} and is {_shown(after)}"


def _shown(value: object) -> str:
    return " or ".join(sorted(value)) if isinstance(value, frozenset) else repr(value)


def _resolved(document: Document, schema: Document) -> Document:
    """Return the schema with references resolved and the parts of `allOf` merged."""
    while "$ref" in schema:
        target: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        schema = target
    if "allOf" not in schema:
        return schema
    made: dict[str, Any] = {name: value for name, value in schema.items() if name != "allOf"}
    for part in schema["allOf"]:
        resolved = _resolved(document, part)
        made["properties"] = {**made.get("properties", {}), **resolved.get("properties", {})}
        made["required"] = [*made.get("required", []), *resolved.get("required", [])]
        made = {**resolved, **made}
    return made


def _choices(schema: Document) -> list[Document]:
    found: list[Document] = schema.get("anyOf") or schema.get("oneOf") or [schema]
    return found


def _types(schema: Document) -> frozenset[str]:
    every = {"null", "boolean", "integer", "number", "string", "array", "object"}
    found = schema.get("type", every)
    types = {found} if isinstance(found, str) else set(found)
    return frozenset(types | {"integer"} if "number" in types else types)
