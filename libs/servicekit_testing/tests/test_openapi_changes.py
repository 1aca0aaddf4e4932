import copy
from collections.abc import Callable
from typing import Any

import pytest

from servicekit_testing.openapi_changes import breaking_changes

BASE: dict[str, Any] = {
    "paths": {
        "/items/{name}": {
            "get": {
                "operationId": "item",
                "parameters": [
                    {"in": "path", "name": "name", "required": True, "schema": {"type": "string"}},
                    {
                        "in": "query",
                        "name": "limit",
                        "schema": {"type": "integer", "minimum": 1, "maximum": 9},
                    },
                ],
                "responses": {
                    "200": {
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Item"}}}
                    },
                    "404": {"description": "none"},
                },
            },
            "put": {
                "operationId": "set",
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Change"}}},
                },
                "responses": {"200": {"description": "done"}},
            },
        }
    },
    "components": {
        "schemas": {
            "Item": {
                "type": "object",
                "required": ["count"],
                "properties": {
                    "count": {"type": "integer"},
                    "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                    "of": {"type": "array", "items": {"$ref": "#/components/schemas/Item"}},
                },
            },
            "Change": {
                "type": "object",
                "required": ["kind"],
                "additionalProperties": False,
                "properties": {
                    "kind": {"type": "string", "enum": ["a", "b"], "maxLength": 5},
                    "at": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]},
                },
            },
        }
    },
}


def get(document: Any) -> Any:
    return document["paths"]["/items/{name}"]["get"]


def put(document: Any) -> Any:
    return document["paths"]["/items/{name}"]["put"]


def item(document: Any) -> Any:
    return document["components"]["schemas"]["Item"]


def change(document: Any) -> Any:
    return document["components"]["schemas"]["Change"]


def after(*edits: Callable[[Any], object]) -> list[str]:
    new = copy.deepcopy(BASE)
    for edit in edits:
        edit(new)
    return breaking_changes(BASE, new)


def test_the_same_document_breaks_nobody() -> None:
    assert after() == []


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: d["paths"].update({"/new": {"get": {"responses": {}}}}),
        lambda d: get(d)["parameters"].append({"in": "query", "name": "new", "schema": {"type": "string"}}),
        lambda d: get(d)["parameters"][1]["schema"].update(maximum=10),
        lambda d: get(d)["parameters"][1]["schema"].pop("minimum"),
        lambda d: get(d)["responses"].update({"409": {"description": "new error"}}),
        lambda d: get(d)["responses"].pop("404"),
        lambda d: item(d)["properties"].update(new={"type": "string"}),
        lambda d: item(d)["required"].append("note"),
        lambda d: item(d)["properties"].update(note={"type": "string"}),
        lambda d: change(d)["properties"].update(new={"type": "string"}),
        lambda d: change(d)["properties"]["kind"]["enum"].append("c"),
        lambda d: change(d)["properties"]["kind"].update(maxLength=6),
        lambda d: change(d).update(required=[]),
        lambda d: change(d).pop("additionalProperties"),
        lambda d: put(d)["requestBody"].update(required=False),
    ],
)
def test_what_allows_callers_more_and_tells_them_more_breaks_nobody(edit: Callable[[Any], object]) -> None:
    assert after(edit) == []


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda d: d["paths"].clear(), "GET /items/{name}: it is gone"),
        (lambda d: d["paths"]["/items/{name}"].pop("put"), "PUT /items/{name}: it is gone"),
        (lambda d: get(d).update(operationId="other"), "operationId"),
        (lambda d: get(d).update(security=[{"bearer": []}]), "other credentials"),
        (lambda d: get(d)["parameters"].pop(), "query parameter limit: it is gone"),
        (lambda d: get(d)["parameters"][1].update(required=True), "limit: it has become required"),
        (
            lambda d: get(d)["parameters"].append({"in": "header", "name": "x", "required": True}),
            "header parameter x: it has become required",
        ),
        (lambda d: get(d)["parameters"][1]["schema"].update(maximum=8), "maximum was 9 and is 8"),
        (lambda d: get(d)["parameters"][1]["schema"].update(type="string"), "type was integer and is string"),
        (lambda d: get(d)["parameters"][0]["schema"].update(pattern="a"), "pattern was None and is 'a'"),
        (lambda d: get(d)["responses"].pop("200"), "200: it is gone"),
        (lambda d: get(d)["responses"].update({"204": {}}), "204: it is a response that clients do not know"),
        (
            lambda d: get(d)["responses"]["200"].update(content={"text/plain": {}}),
            "200: it is no longer answered as application/json",
        ),
        (lambda d: item(d)["properties"].pop("note"), "200.note: it is gone"),
        (lambda d: item(d).update(required=[]), "200.count: it is no longer always there"),
        (lambda d: item(d)["properties"]["count"].update(type="number"), "200.count: the type was"),
        (
            lambda d: item(d)["properties"]["note"]["anyOf"].append({"type": "integer"}),
            "200.note: alternative 3 of the new response has no counterpart",
        ),
        (lambda d: item(d)["properties"]["of"].update(items={"type": "string"}), "200.of[]"),
        (lambda d: change(d)["required"].append("at"), "body.at: it has become required"),
        (lambda d: change(d)["properties"].pop("at"), "body.at: it is gone"),
        (lambda d: change(d)["properties"]["kind"]["enum"].pop(), "body.kind: other values"),
        (
            lambda d: change(d)["properties"]["kind"].update(minLength=1),
            "body.kind: minLength was None and is 1",
        ),
        (lambda d: change(d)["properties"]["at"]["anyOf"].pop(), "body.at: alternative 2"),
        (lambda d: put(d).pop("requestBody"), "body: it is gone"),
        (
            lambda d: put(d)["requestBody"].update(content={"text/plain": {}}),
            "body: application/json is no longer accepted",
        ),
        (
            lambda d: get(d).update(requestBody={"required": True, "content": {}}),
            "GET /items/{name} body: it has become required",
        ),
    ],
)
def test_what_narrows_requests_or_widens_answers_is_reported(
    edit: Callable[[Any], object], said: str
) -> None:
    found = after(edit)
    assert any(said in text for text in found), found


def test_parts_that_are_put_together_are_compared_as_a_whole() -> None:
    def split(document: Any) -> None:
        whole = item(document)
        document["components"]["schemas"]["Base"] = {
            "type": "object",
            "required": whole.pop("required"),
            "properties": {"count": whole["properties"].pop("count")},
        }
        whole["allOf"] = [{"$ref": "#/components/schemas/Base"}]

    assert after(split) == []
    assert after(split, lambda d: d["components"]["schemas"]["Base"]["properties"].clear())
