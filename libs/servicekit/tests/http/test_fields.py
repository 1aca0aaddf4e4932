from typing import Annotated, Any
from uuid import UUID

import pytest
from pydantic import Field, ValidationError

from servicekit.http.app import Strict
from servicekit.http.fields import CANONICAL_UUID, LINE, LINE_SCHEMA, TIME_MS

ID = "0190f6a2-5a7c-7c3e-8f3e-1d2c3b4a5968"


class Body(Strict):
    text: Annotated[str, LINE, Field(max_length=9, json_schema_extra=LINE_SCHEMA)] = ""
    id: Annotated[UUID | None, CANONICAL_UUID] = None
    at: Annotated[int | None, TIME_MS] = None


@pytest.mark.parametrize(
    "body",
    [{"text": "é 用户 🎵"}, {"id": ID}, {"id": ID.upper()}, {"id": None}, {"at": 0}, {"at": 2**53 - 1}],
)
def test_valid_bodies_are_accepted(body: dict[str, Any]) -> None:
    assert Body.model_validate(body).model_dump(exclude_unset=True).keys() == body.keys()


@pytest.mark.parametrize(
    "body",
    [
        {"text": "a\nb"},
        {"text": "\x7f"},
        {"text": "\x85"},
        {"id": "7"},
        {"id": "urn:uuid:" + ID},
        {"id": "{" + ID + "}"},
        {"id": ID.replace("-", "")},
        {"id": 7},
        {"at": -1},
        {"at": 2**53},
        {"at": "5"},
    ],
)
def test_invalid_bodies_are_rejected(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Body.model_validate(body)


def test_openapi_states_the_rules_of_the_fields() -> None:
    properties = Body.model_json_schema()["properties"]
    assert properties["text"]["pattern"].startswith("^[^")
    assert properties["at"]["anyOf"][0] == {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
