from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exactavro import Schema, Unfit, avro_branch, avro_branch_of, decode, encode, make_reader, make_writer


def record(name: str, *fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    made = [{"name": each, "type": of} for each, of in fields]
    return {"type": "record", "name": name, "fields": made, **more}


V1 = record("acme.v1.Order", ("id", "string"))
V2 = record("acme.v2.Order", ("id", "string"), ("cents", "long"))
CREATED = record("acme.UserCreated", ("id", "string"))
DELETED = record("acme.UserDeleted", ("id", "string"))
COLOR = {"type": "enum", "name": "acme.Color", "symbols": ["RED", "BLUE"]}
SIGNAL = {"type": "enum", "name": "acme.Signal", "symbols": ["GREEN", "RED"]}
DIGEST = {"type": "fixed", "name": "acme.Digest", "size": 2}


def again(writer: Any, data: bytes, reader: Any = None) -> bytes:
    """Read a value, and write it again with the reader's schema."""
    own = Schema.load(reader or writer)
    return encode(make_writer(own), decode(make_reader(Schema.load(writer), own), data))


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ([V1, V2], b"\x00\x02x"),
        ([V1, V2], b"\x02\x02x\x0a"),
        ([CREATED, DELETED], b"\x02\x02x"),
        (record("R", ("event", ["null", CREATED, DELETED])), b"\x04\x02x"),
        ({"type": "array", "items": [CREATED, DELETED]}, b"\x04\x02\x02x\x00\x02y\x00"),
        ({"type": "map", "values": [CREATED, DELETED]}, b"\x02\x02k\x02\x02x\x00"),
        ([{"type": "map", "values": "string"}, CREATED], b"\x02\x02x"),
        ([CREATED, {"type": "map", "values": "string"}], b"\x02\x02\x04id\x02x\x00"),
        (["null", "string", COLOR], b"\x02\x06RED"),
        (["null", "string", COLOR], b"\x04\x00"),
        ([COLOR, "string"], b"\x02\x06RED"),
        (["null", COLOR, SIGNAL], b"\x04\x02"),
        (["null", COLOR], b"\x02\x02"),
        (["bytes", DIGEST], b"\x02ab"),
        ([DIGEST, "bytes"], b"\x02\x04ab"),
        (["null", "boolean", "int"], b"\x02\x01"),
        (["int", "boolean"], b"\x02\x01"),
        (["double", "int"], b"\x02\x02"),
    ],
)
def test_a_value_that_was_read_is_written_again_as_the_same_branch(schema: Any, data: bytes) -> None:
    assert again(schema, data) == data


def test_branches_are_matched_by_full_name_and_by_alias_also_if_the_schemas_differ() -> None:
    other = record("acme.v2.Order", ("id", "string"), ("cents", "long"), ("note", ["null", "string"]))
    other["fields"][2]["default"] = None
    assert decode(make_reader(Schema.load([V1, V2]), Schema.load([V1, other])), b"\x02\x02x\x0a") == {
        "id": "x",
        "cents": 5,
        "note": None,
    }
    removed = record("acme.UserRemoved", ("id", "string"), aliases=["UserDeleted"])
    assert again([CREATED, DELETED], b"\x02\x02x", [CREATED, removed]) == b"\x02\x02x"
    value = decode(make_reader(Schema.load(DELETED), Schema.load([CREATED, removed])), b"\x02x")
    assert avro_branch_of(value) == "acme.UserRemoved"


def test_a_branch_is_chosen_by_its_full_name_or_by_a_simple_name_that_one_branch_has() -> None:
    write = make_writer(Schema.load([CREATED, DELETED]))
    assert encode(write, avro_branch("acme.UserDeleted", {"id": "x"})) == b"\x02\x02x"
    assert encode(write, avro_branch("UserDeleted", {"id": "x"})) == b"\x02\x02x"
    assert (
        encode(make_writer(Schema.load(["null", COLOR, SIGNAL])), avro_branch("acme.Signal", "RED"))
        == b"\x04\x02"
    )
    with pytest.raises(TypeError, match="a dict, a str or bytes"):
        avro_branch("acme.UserDeleted", 5)  # type: ignore[call-overload] # what a user may do


def test_a_plain_dict_that_fits_several_records_is_refused_unless_one_has_exactly_its_fields() -> None:
    with pytest.raises(
        Unfit, match=r"fits several branches, acme\.UserCreated, acme\.UserDeleted: choose one"
    ):
        encode(make_writer(Schema.load([CREATED, DELETED])), {"id": "x"})
    more = record("acme.More", ("id", "string"), ("note", ["null", "string"]))
    more["fields"][1]["default"] = None
    assert encode(make_writer(Schema.load([more, CREATED])), {"id": "x"}) == b"\x02\x02x"


def test_a_value_with_its_name_equals_a_plain_one_and_keeps_the_name_when_it_is_copied() -> None:
    value = avro_branch("acme.UserDeleted", {"id": "x"})
    assert value == {"id": "x"}
    assert avro_branch_of(deepcopy(value)) == "acme.UserDeleted"
    assert avro_branch_of({"id": "x"}) is None


def test_a_union_without_two_branches_of_one_type_has_plain_values() -> None:
    value = decode(make_reader(Schema.load(["null", CREATED, COLOR])), b"\x02\x02x")
    assert type(value) is dict
    assert avro_branch_of(value) is None


def test_an_error_of_a_union_says_what_each_branch_needs() -> None:
    with pytest.raises(
        Unfit, match=r"a float that fits no branch of string, int \(string: must be a str, not float; int: "
    ):
        encode(make_writer(Schema.load(["string", "int"])), 1.5)
    with pytest.raises(
        Unfit,
        match=r"\(string: must be a str, not bytes; record acme.UserCreated: must be a dict, not bytes\)",
    ):
        encode(make_writer(Schema.load([CREATED, "string"])), b"x")


BRANCHES = st.lists(
    st.sampled_from(
        [
            "null",
            "boolean",
            "long",
            "double",
            "string",
            "bytes",
            V1,
            V2,
            CREATED,
            DELETED,
            COLOR,
            SIGNAL,
            DIGEST,
        ]
    ),
    min_size=1,
    max_size=6,
    unique_by=str,
)
BODIES = {
    "null": st.just(b""),
    "boolean": st.sampled_from([b"\x00", b"\x01"]),
    "long": st.sampled_from([b"\x00", b"\x02", b"\x80\x02"]),
    "double": st.sampled_from([bytes(8), b"\x00\x00\x00\x00\x00\x00\xf0?"]),
    "string": st.sampled_from([b"\x00", b"\x06RED"]),
    "bytes": st.sampled_from([b"\x00", b"\x04ab"]),
    "acme.v1.Order": st.just(b"\x02x"),
    "acme.v2.Order": st.just(b"\x02x\x0a"),
    "acme.UserCreated": st.just(b"\x02x"),
    "acme.UserDeleted": st.just(b"\x02x"),
    "acme.Color": st.sampled_from([b"\x00", b"\x02"]),
    "acme.Signal": st.sampled_from([b"\x00", b"\x02"]),
    "acme.Digest": st.just(b"ab"),
}


@settings(deadline=None, database=None)
@given(data=st.data(), branches=BRANCHES)
def test_any_union_reads_and_writes_the_same_bytes(data: st.DataObject, branches: list[Any]) -> None:
    number = data.draw(st.integers(0, len(branches) - 1))
    branch = branches[number]
    body = data.draw(BODIES[branch if isinstance(branch, str) else branch["name"]])
    written = bytes([number * 2]) + body
    assert again(branches, written) == written
    assert again(record("R", ("u", branches)), written) == written
