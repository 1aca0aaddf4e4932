import pytest
from pydantic import BaseModel

from servicekit.http.cursors import Cursors
from servicekit.http.problems import Problem
from servicekit.http.responses import json_answer, matches, page_after


class Point(BaseModel):
    x: int
    name: str | None


def test_a_model_is_returned_as_json() -> None:
    answer = json_answer(Point(x=1, name=None), {"ETag": "y"})
    assert bytes(answer.body) == b'{"x":1,"name":null}'
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["etag"] == "y"


@pytest.mark.parametrize("given", ['W/"1"', '"1"', '"0", W/"1"', "*"])
def test_a_tag_matches_by_weak_comparison(given: str) -> None:
    assert matches(given, 'W/"1"')


@pytest.mark.parametrize("given", [None, "", '"2"', "1"])
def test_other_tags_do_not_match(given: str | None) -> None:
    assert not matches(given, 'W/"1"')


def test_a_page_starts_after_the_position_of_its_cursor_and_the_first_page_at_the_start() -> None:
    cursors = Cursors(b"0123456789abcdef")
    assert page_after(cursors, "q", None) is None
    assert page_after(cursors, "q", cursors.seal("q", "alice")) == "alice"
    with pytest.raises(Problem) as caught:
        page_after(cursors, "other", cursors.seal("q", "alice"))
    assert caught.value.status == 422
