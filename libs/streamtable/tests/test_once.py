"""The pure part of `Once`: ids as bytes, chunks, and the rule."""

from dataclasses import dataclass
from datetime import timedelta
from operator import itemgetter
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtable.codec import Avro
from streamtable.codec.lazy import Lazy
from streamtable.errors import GraphError
from streamtable.graph.once import (
    AHEAD_MS_MAX,
    IdChunk,
    NoId,
    Once,
    UnreadableIds,
    accept,
    id_bytes,
    ids_of,
    many_id_bytes,
    stream_time,
)

IDS = st.one_of(st.text(max_size=40), st.binary(max_size=40), st.integers(), st.uuids(), st.uuids().map(str))


@given(st.one_of(st.lists(IDS), st.lists(st.text(max_size=40))))
def test_many_ids_are_packed_as_each_alone(values: list[object]) -> None:
    assert many_id_bytes(values) == [id_bytes(value) for value in values]


@given(st.lists(st.uuids()))
def test_the_text_of_a_uuid_is_packed_as_its_own_bytes(values: list[UUID]) -> None:
    assert many_id_bytes(list(map(str, values))) == [value.bytes for value in values]


@pytest.mark.parametrize(
    "other", [str(UUID(int=0xABC)).upper(), str(UUID(int=0xABC)).replace("-", ""), f"{{{UUID(int=0xABC)}}}"]
)
def test_text_that_only_looks_like_a_uuid_is_another_id(other: str) -> None:
    assert id_bytes(other) != UUID(int=0xABC).bytes


@pytest.mark.parametrize("value", [None, True, 1.5, [], object()])
def test_what_is_no_id_is_refused(value: object) -> None:
    with pytest.raises(NoId):
        id_bytes(value)


def test_of_encoded_records_only_the_field_of_the_id_is_read() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": "string"} for name in ("id", "other")],
    }
    codec: Avro[Any] = Avro(schema)
    data = [codec.encode({"id": f"{number}é", "other": "x"}) for number in range(200)]
    codec.decode(data[0])
    events = codec.decode_many(data).values
    assert isinstance(events, Lazy)
    ids, failed = ids_of(Once(by="id", within=timedelta(1)), events)
    assert ids == [id_bytes(f"{number}é") for number in range(200)]
    assert failed == {}
    assert events._make is not None, "the records were not made"
    _, failed = ids_of(Once(by="absent", within=timedelta(1)), events)
    assert {type(error) for error in failed.values()} == {KeyError}
    assert len(failed) == 200


def test_events_without_an_id_are_named_by_index() -> None:
    ids, failed = ids_of(Once(by="id", within=timedelta(1)), [{"id": "a"}, {}, {"id": None}, {"id": "b"}])
    assert ids == [id_bytes("a"), id_bytes("b")]
    assert {index: type(error) for index, error in failed.items()} == {1: KeyError, 2: NoId}


@given(st.lists(st.tuples(st.binary(min_size=16, max_size=16), st.integers(-1, 2**62)), min_size=1))
def test_a_chunk_survives_its_way_through_the_changelog(accepted: list[tuple[bytes, int]]) -> None:
    accepted.sort(key=itemgetter(1))
    data = IdChunk.of([each for each, _ in accepted], [time for _, time in accepted]).encode()
    assert list(IdChunk.decode(data).each()) == accepted
    assert IdChunk.newest_of(data) == accepted[-1][1]


@pytest.mark.parametrize(
    "data", [b"", b"\x02" + bytes(12), b"\x01" + bytes(12) + b"x", b"\x01" + bytes(11) + b"\x01"]
)
def test_a_chunk_of_another_program_is_refused(data: bytes) -> None:
    with pytest.raises(UnreadableIds):
        IdChunk.decode(data)


def test_an_id_counts_again_when_more_than_the_horizon_has_passed_since_it_was_accepted() -> None:
    assert list(accept([b"x"] * 5, [0, 9, 10, 11, 21], 10, 0)) == [True, False, False, True, False]


def test_a_timestamp_far_ahead_of_the_clock_does_not_move_the_stream_time() -> None:
    assert stream_time(5, AHEAD_MS_MAX + 100, now_ms=100) == AHEAD_MS_MAX + 100
    assert stream_time(5, AHEAD_MS_MAX + 101, now_ms=100) == 5


@pytest.mark.parametrize("within", [timedelta(0), timedelta(days=-1), timedelta(days=400)])
def test_a_horizon_that_cannot_be_kept_is_refused(within: timedelta) -> None:
    with pytest.raises(GraphError, match="within"):
        Once(by="id", within=within)


def test_an_id_must_be_said_where_to_find() -> None:
    with pytest.raises(GraphError, match="by"):
        Once(by="", within=timedelta(1))


@dataclass
class Event:
    """An event whose id is an attribute of an attribute."""

    meta: Any


def test_an_id_that_is_an_attribute_of_an_attribute_is_found_beside_events_without_one() -> None:
    once = Once[Any](by="meta.id", within=timedelta(days=1))
    good, bad = Event(SimpleNamespace(id="a")), Event(None)
    alone, none = ids_of(once, [good])
    beside, failed = ids_of(once, [good, bad])
    assert (alone, none) == (beside, {})
    assert list(failed) == [1]
