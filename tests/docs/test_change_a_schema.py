"""How to change a schema: records of both versions are read as the page says."""

import re
from pathlib import Path
from typing import Any

import pytest

from streamtable import Avro, Stream, String
from streamtable_testing import Tester

PAGE = (Path(__file__).parents[2] / "docs/how-to/change-a-schema.md").read_text()


@pytest.fixture
def program() -> dict[str, Any]:
    (text,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"__name__": "page"}
    exec(text, names)
    return names


def test_a_record_of_the_earlier_version_has_the_new_name_and_the_default(program: dict[str, Any]) -> None:
    before: Stream[str, Any] = Stream("orders", key=String(), value=Avro(program["ORDER_1"]))
    with Tester() as tester:
        tester.run(program["GROUP"])
        tester.emit(before, "a", {"cust": "ada"})
        tester.emit(program["ORDERS"], "b", {"customer": "bob", "cents": 7})
        assert tester.table(program["GROUP"]) == {
            "a": {"customer": "ada", "cents": 0},
            "b": {"customer": "bob", "cents": 7},
        }


def test_a_record_of_a_version_that_the_codec_does_not_know_is_a_dead_letter(program: dict[str, Any]) -> None:
    later = {**program["ORDER"], "fields": [*program["ORDER"]["fields"], {"name": "at", "type": "long"}]}
    writes: Stream[str, Any] = Stream("orders", key=String(), value=Avro(later))
    with Tester() as tester:
        tester.run(program["GROUP"])
        tester.emit(writes, "a", {"customer": "ada", "cents": 1, "at": 2})
        (letter,) = tester.dead_letters(program["GROUP"])
        assert "unknown schema" in letter.reason
