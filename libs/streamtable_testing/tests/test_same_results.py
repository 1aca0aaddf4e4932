"""Whole batches and single records come to the same: the engine's fast paths against the plainest one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any, NamedTuple, TypedDict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from exactavro import columns
from exactavro.columns import AvroColumns, ColumnReader
from streamtable import (
    Aggregate,
    Avro,
    Context,
    Count,
    Group,
    Input,
    Last,
    Max,
    OnError,
    Persist,
    Stream,
    String,
    Sum,
)
from streamtable.base.ports import Codec, Decoded
from streamtable.errors import DeserializationError
from streamtable_testing import Tester

SALES = "sales"
OLD = """{"type": "record", "name": "sale", "fields": [
    {"name": "shop", "type": "string"}, {"name": "cents", "type": "long"}]}"""
NEW = """{"type": "record", "name": "sale", "fields": [
    {"name": "shop", "type": "string"}, {"name": "cents", "type": "long"},
    {"name": "paid", "type": "boolean", "default": true}]}"""
HUGE = 2**62  # two of them are no Avro long
UNLUCKY = 13


class Sale(TypedDict):
    shop: str
    cents: int
    paid: bool


@dataclass(frozen=True)
class Versions:
    schema: str = NEW
    history: tuple[str, ...] = (OLD, NEW)
    row: type[Sale] = Sale


class OneByOne(Avro[Sale]):
    """Decodes a column by a call for each of its items."""

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[Sale]:
        values: list[Sale | None] = []
        poison: dict[int, DeserializationError] = {}
        for index, item in enumerate(data):
            try:
                values.append(None if item is None else self.decode(item))
            except DeserializationError as error:
                poison[index] = error
                values.append(None)
        return Decoded(values, poison)


def cents(sale: Sale) -> int:
    if sale["cents"] == UNLUCKY:
        raise ValueError("an unlucky number")
    return sale["cents"]


def count(ctx: Context[str, int], _: Sale) -> None:
    ctx.set((ctx.value or 0) + 1)


def add(ctx: Context[str, int], sale: Sale) -> None:
    ctx.set((ctx.value or 0) + cents(sale))


def highest(ctx: Context[str, int], sale: Sale) -> None:
    number = cents(sale)
    ctx.set(number if ctx.value is None else max(ctx.value, number))


def keep(ctx: Context[str, Sale], sale: Sale) -> None:
    ctx.set(sale)


CASES: dict[str, tuple[Aggregate[Any, Any], Any, Any]] = {
    "count": (Count(), count, "long"),
    "sum": (Sum(cents), add, "long"),
    "max": (Max(cents), highest, "long"),
    "last": (Last(), keep, Versions()),
}


def groups(case: str, on_error: OnError) -> list[Group[str, Any]]:
    """The same work by an aggregate and by a handler, both over columns, and by a handler over single records."""
    aggregate, handler, row = CASES[case]

    def group(name: str, codec: Codec[Sale], **does: Any) -> Group[str, Any]:
        stream = Stream(SALES, key=String(), value=codec)
        return Group(name, Input(stream, on_error=on_error, **does), Persist(Avro(row)))

    return [
        group("a", Avro(Versions()), aggregate=aggregate),
        group("b", Avro(Versions()), handler=handler),
        group("c", OneByOne(Versions()), handler=handler),
    ]


# ---- input ------------------------------------------------------------------------------------------------------------


class Raw(NamedTuple):
    key: bytes | None
    value: bytes | None


ENCODE, ENCODE_OLD = Avro[Any](NEW).encode, Avro[Any](OLD).encode
AMOUNTS = st.integers(-3, 3)
SHOPS = st.sampled_from(["", "corner", "überall", "\x00", "s" * 70])
GOOD = st.builds(
    lambda shop, n, paid: ENCODE({"shop": shop, "cents": n, "paid": paid}), SHOPS, AMOUNTS, st.booleans()
)
EARLIER = st.builds(lambda shop, n: ENCODE_OLD({"shop": shop, "cents": n}), SHOPS, AMOUNTS)


def _hurt(good: bytes, how: str, at: int) -> bytes:
    at %= len(good)
    match how:
        case "cut":
            return good[:at]
        case "longer":
            return good + b"\x00"
        case "flip":
            return good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :]
        case _:
            return good[:at] + b"\xff" + good[at:]


POISON = st.builds(_hurt, GOOD, st.sampled_from(["cut", "longer", "flip", "insert"]), st.integers(0, 200))
VALUES = st.one_of(GOOD, GOOD, GOOD, EARLIER, POISON, st.binary(max_size=12))
KEYS = st.sampled_from([b"ann", b"bob", "zoë".encode(), b""])
RECORDS = st.one_of(
    st.builds(Raw, KEYS, VALUES),
    st.builds(Raw, KEYS, VALUES),
    st.builds(Raw, KEYS, GOOD),
    st.builds(Raw, st.sampled_from([None, b"\xff\xfe"]), GOOD),
    st.builds(Raw, KEYS, st.none()),
)
# Those that a handler or the table refuses: each has the batch handled once more, so there are few of them.
REFUSED = st.builds(
    Raw,
    KEYS,
    st.builds(
        lambda n: ENCODE({"shop": "corner", "cents": n, "paid": True}), st.sampled_from([UNLUCKY, HUGE])
    ),
)


def _batch(records: list[Raw], size: int, refused: list[tuple[int, Raw]]) -> list[Raw]:
    """Repeat the records: as useful as many different ones, and quick to draw."""
    batch = list(islice(cycle(records), size))
    for at, record in refused:
        batch.insert(at % (size + 1), record)
    return batch


COMPLETE = st.builds(Raw, KEYS, VALUES)
BATCHES = st.builds(
    _batch,
    # Without a value in all of them a batch is not read by columns.
    st.one_of(*(st.lists(each, min_size=1, max_size=20) for each in (COMPLETE, RECORDS))),
    st.sampled_from([1, 7, 99, 100, 260]),
    st.lists(st.tuples(st.integers(0, 260), REFUSED), max_size=3),
)


# ---- comparison -------------------------------------------------------------------------------------------------------


class Result(NamedTuple):
    """The final state of a group."""

    table: dict[str, Any]
    dead_letters: list[tuple[Any, ...]]
    offsets: dict[tuple[str, int], int]


def offsets(tester: Tester, group: Group[str, Any]) -> dict[tuple[str, int], int]:
    committed = tester.kafka.committed(group.name)
    return {place: each.next_offset for place, each in committed.items() if place.topic == SALES}


def results(case: str, batches: Sequence[list[Raw]], partitions: int, on_error: OnError) -> Iterator[Result]:
    with capture_logs(), Tester(partitions=partitions, work_on_request=True) as tester:
        made = groups(case, on_error)
        tester.run(*made)
        tester.work()
        sent = 0
        for batch in batches:
            for key, value in batch:
                tester.emit_raw(SALES, key, value, partition=-1 if key else 0)
            sent += len(batch)
            for _ in (
                batch
            ):  # of many records that are refused, one falls in each turn, which looks like standing still
                tester.work()
                if all(sum(offsets(tester, group).values()) == sent for group in made):
                    break
        for group in made:
            letters = tester.dead_letters(group)
            yield Result(
                dict(tester.table(group)),
                [
                    (
                        each.key,
                        each.value,
                        each.origin,
                        each.error,
                        each.reason.replace(repr(group.name), "it").replace(
                            repr(group.table.name), "its table"
                        ),
                    )
                    for each in letters
                ],
                offsets(tester, group),
            )


def compare(case: str, batches: Sequence[list[Raw]], partitions: int, on_error: OnError) -> None:
    by_aggregate, by_handler, one_by_one = results(case, batches, partitions, on_error)
    assert by_aggregate == one_by_one
    assert by_handler == one_by_one
    assert sum(one_by_one.offsets.values()) == sum(map(len, batches))


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    batches=st.lists(BATCHES, min_size=1, max_size=4),
    partitions=st.integers(1, 2),
    on_error=st.sampled_from([OnError.DEAD_LETTER, OnError.SKIP]),
)
def test_an_aggregate_over_columns_comes_to_the_same_as_a_handler_that_is_given_one_record_after_the_other(
    case: str, batches: list[list[Raw]], partitions: int, on_error: OnError
) -> None:
    compare(case, batches, partitions, on_error)


GOOD_ONE = Raw(b"ann", ENCODE({"shop": "corner", "cents": 1, "paid": True}))
BAD_ONE = Raw(b"ann", b"\xff" * 30)


@pytest.mark.parametrize("case", CASES)
def test_the_comparison_notices_columns_that_take_a_malformed_record_for_a_good_one(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = ColumnReader.read

    def too_sure(self: ColumnReader, messages: Sequence[bytes], max_bytes: int) -> AvroColumns:
        good = GOOD_ONE.value
        assert good is not None
        return read(self, [good if each == BAD_ONE.value else each for each in messages], max_bytes)

    batches = [[GOOD_ONE], [*[GOOD_ONE] * 150, BAD_ONE]]
    compare(case, batches, 1, OnError.DEAD_LETTER)
    monkeypatch.setattr(columns.ColumnReader, "read", too_sure)
    with pytest.raises(AssertionError):
        compare(case, batches, 1, OnError.DEAD_LETTER)
