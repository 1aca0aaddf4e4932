"""Joins by a foreign key through the engine, without a broker: each change of either side reaches all rows concerned."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from streamtable import Bytes, Group, Json, Long, Stream, String
from streamtable.base.partitioner import partition_for
from streamtable.base.types import Committed, Guarantee, NextOffset
from streamtable.errors import HandlerFailed, StateMeaningChanged
from streamtable.flow import Flow, KeyedTable
from streamtable.flow.sides import packed
from streamtable.tables.position import TablePosition
from streamtable_testing.tester import Tester

# A sale is a key and the number of its product, -1: none; a price is the number of a product and a text. Empty: deleted.
SALES: Stream[str, Any] = Stream("sales", String(), Json())
PRICES = Stream("prices", Long(), String())
OUT: Stream[str, Any] = Stream("out", String(), Json())
JSON: Any = Json()


def pair(sale: Any, price: Any) -> Any:
    return [sale["n"], price]


def product(sale: Any) -> int | None:
    return None if sale["product"] < 0 else sale["product"]


def joined(operator: str) -> Flow:
    flow = Flow("f")
    sales = flow.stream(SALES).map_values(lambda v: v or None, value=JSON).to_table("sales", value=JSON)
    prices = (
        flow.stream(PRICES, group="prices").map_values(lambda v: v or None).to_table("prices", value=String())
    )
    join = sales.join if operator == "join" else sales.left_join
    both: KeyedTable[str, Any] = join("priced", prices, pair, on=product, value=JSON)
    both.to_stream().to(OUT)
    return flow


def emit(tester: Tester, *events: tuple[Any, Any], homes: Mapping[str, int] = {}) -> None:
    """Emit prices, by number, and sales: a key, and (n, product), or None. `homes`: the partitions of sales, by key."""
    for key, value in events:
        if isinstance(key, int):
            tester.emit(PRICES, key, value or "")
        else:
            sale = JSON.encode({"n": value[0], "product": value[1]} if value else {})
            tester.emit_raw(SALES.name, key.encode(), sale, partition=homes.get(key, -1))


def written(tester: Tester) -> list[tuple[Any, Any]]:
    return [(each.key, each.value) for each in tester.records(OUT)]


def rows(tester: Tester) -> dict[Any, Any]:
    last = dict(written(tester))
    return {key: row for key, row in last.items() if row is not None}


def test_a_change_of_a_right_row_updates_all_left_rows_that_name_it(tester: Tester) -> None:
    tester.run(joined("join"), partitions=3)
    emit(tester, ("a", (1, 7)), ("b", (2, 7)), ("c", (3, 8)), (7, "x"), (8, "y"))
    assert rows(tester) == {"a": [1, "x"], "b": [2, "x"], "c": [3, "y"]}
    emit(tester, (7, "z"))
    assert rows(tester) == {"a": [1, "z"], "b": [2, "z"], "c": [3, "y"]}
    emit(tester, (7, None))
    assert rows(tester) == {"c": [3, "y"]}


def test_rows_that_are_written_again_unchanged_make_no_changes_and_no_answers(tester: Tester) -> None:
    tester.run(joined("join"), partitions=3)
    emit(tester, ("a", (1, 7)), ("b", (2, 7)), (7, "x"))
    before, answers = written(tester), len(tester.records(Stream("f-priced-answers", String(), Bytes())))
    emit(tester, (7, "x"), ("a", (1, 7)), (7, "x"))
    assert written(tester) == before
    assert len(tester.records(Stream("f-priced-answers", String(), Bytes()))) == answers
    emit(tester, (7, "y"), ("a", (1, 7)), ("b", (3, 7)))
    assert rows(tester) == {"a": [1, "y"], "b": [3, "y"]}


@pytest.mark.parametrize("again", [(7, "x"), ("a", (1, 7))])
def test_at_least_once_unchanged_rows_of_either_side_are_written_again(tester: Tester, again: Any) -> None:
    tester.run(joined("join"), guarantee=Guarantee.AT_LEAST_ONCE)
    emit(tester, (7, "x"), ("a", (1, 7)))
    before = written(tester)
    emit(tester, again)
    assert written(tester) == [*before, ("a", [1, "x"])]


def test_a_left_row_may_turn_to_another_key(tester: Tester) -> None:
    tester.run(joined("join"), partitions=3)
    emit(tester, (7, "x"), (8, "y"), ("a", (1, 7)), ("a", (2, 8)), (7, "z"))
    assert rows(tester) == {"a": [2, "y"]}
    emit(tester, ("a", (3, 9)))
    assert rows(tester) == {}
    emit(tester, ("a", (4, 7)))
    assert rows(tester) == {"a": [4, "z"]}
    emit(tester, ("a", None), (7, "x"))
    assert rows(tester) == {}


def test_a_left_row_that_names_nothing_has_no_row_in_an_inner_join_and_one_in_a_left_join(
    tester: Tester,
) -> None:
    tester.run(joined("join"))
    emit(tester, ("a", (1, -1)), ("b", (2, 5)))
    assert rows(tester) == {}
    with Tester() as other:
        other.run(joined("left_join"))
        emit(other, ("a", (1, -1)), ("b", (2, 5)))
        assert rows(other) == {"a": [1, None], "b": [2, None]}
        emit(other, (5, "x"), ("b", (2, -1)))
        assert written(other)[2:] == [("b", [2, "x"]), ("b", [2, None])]


def test_a_change_that_keeps_the_key_is_joined_without_an_answer(tester: Tester) -> None:
    flow = joined("join")
    tester.run(flow)
    emit(tester, (7, "x"), ("a", (1, 7)))
    asked = len(tester.kafka.records("f-priced-subscriptions"))
    emit(tester, ("a", (2, 7)))
    assert rows(tester) == {"a": [2, "x"]}
    assert len(tester.kafka.records("f-priced-subscriptions")) == asked


# ---- partitions that the left key does not decide ---------------------------------------------------------------------------

PARTITIONS = 5
KEYS = [f"sale-{number}" for number in range(20)]
PLACES: Mapping[str, Callable[[int], int]] = {
    "by crc32, as librdkafka chooses": lambda number: partition_for(
        KEYS[number].encode(), PARTITIONS, "crc32"
    ),
    "round robin of keys": lambda number: number % PARTITIONS,
    "all in one": lambda _: 3,
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("operator", ["join", "left_join"])
def test_a_left_table_may_be_in_any_partitions(
    tester: Tester, operator: str, place: Callable[[int], int]
) -> None:
    homes = {key: place(number) for number, key in enumerate(KEYS)}
    sales = [(key, (number, number % 7)) for number, key in enumerate(KEYS)]
    with capture_logs() as logs:
        tester.run(joined(operator), partitions=PARTITIONS)
        emit(tester, *sales, *((product, f"price {product}") for product in range(5)), homes=homes)
    found = {key: [n, f"price {product}" if product < 5 else None] for key, (n, product) in sales}
    found = {key: row for key, row in found.items() if operator == "left_join" or row[1] is not None}
    assert rows(tester) == found
    # That the sales are elsewhere is said, for others who look for them; the answers are where they were asked for.
    assert {line["place"].partition("[")[0] for line in logs if "place" in line} == {"sales"}
    emit(tester, (0, "new"), (KEYS[1], None), (KEYS[2], (2, 0)), homes=homes)
    assert {key: rows(tester).get(key) for key in KEYS[:3]} == {
        KEYS[0]: [0, "new"],
        KEYS[1]: None,
        KEYS[2]: [2, "new"],
    }


def asked(version: int, key: str, *more: bytes) -> bytes:
    """Return a subscription as it is in its topic; earlier versions wrote the left key alone."""
    return version.to_bytes(8) + packed((key.encode(), *more))


def answers(tester: Tester) -> list[tuple[int, bytes | None]]:
    return [(place.partition, record.key()) for place, record in tester.kafka.records("f-priced-answers")]


def test_a_subscription_from_before_it_carried_its_partition_is_answered_in_that_of_the_key(
    tester: Tester,
) -> None:
    flow = joined("join")
    right = flow.group("prices")
    tester.run(right, partitions=PARTITIONS)
    seven = Long().encode(7)
    for key in KEYS:
        tester.emit_raw("f-priced-subscriptions", seven, asked(1, key))
    homes = [(partition_for(key.encode(), PARTITIONS), key.encode()) for key in KEYS]
    assert sorted(answers(tester)) == sorted(homes)
    tester.stop(right)
    tester.start(right, disk=False)
    emit(tester, (7, "x"))
    assert sorted(answers(tester)) == sorted(2 * homes)
    for key in KEYS:  # and the same rows subscribe once more, with their partition
        tester.emit_raw("f-priced-subscriptions", seven, asked(2, key, (3).to_bytes(4)))
    emit(tester, (7, "y"))
    assert sorted(answers(tester)) == sorted([*2 * homes, *2 * [(3, key.encode()) for key in KEYS]])


def test_a_subscription_that_names_no_partition_of_the_answers_is_refused(tester: Tester) -> None:
    tester.run(joined("join"), partitions=2)
    with pytest.raises(HandlerFailed, match="is for partition 2, and the topic has 2"):
        tester.emit_raw("f-priced-subscriptions", Long().encode(7), asked(1, "a", (2).to_bytes(4)))


def reset(tester: Tester, flow: Flow) -> None:
    """Reset all groups as docs/explanation/joins.md says: from the beginning, except for the topics between them."""
    for group in flow.groups:
        tester.leave(group)
        del tester._instances[group.name]
        for table in group.tables:
            tester.kafka.delete_topic(table)
        committed = tester.kafka.group(group.name).offsets.committed
        for place in committed:
            topic = tester.kafka.partition(place)
            to = topic.high if topic is not None and place.topic.startswith("f-priced-") else 0
            committed[place] = Committed(NextOffset(to), TablePosition(0, exact=True).encode())
    tester.run(flow)


def test_a_join_whose_groups_are_reset_is_the_same_and_follows_changes(tester: Tester) -> None:
    homes = {key: number % PARTITIONS for number, key in enumerate(KEYS)}
    flow = joined("join")
    tester.run(flow, partitions=PARTITIONS)
    emit(tester, *((product, f"price {product}") for product in range(3)))
    for turn in range(2):
        emit(tester, *((key, (turn, (number + turn) % 3)) for number, key in enumerate(KEYS)), homes=homes)
    before = rows(tester)
    assert len(before) == len(KEYS)
    tester.kafka.compact("sales")  # versions of subscriptions are others than before
    reset(tester, flow)
    assert rows(tester) == before
    emit(tester, *((product, f"new {product}") for product in range(3)))
    assert rows(tester) == {key: [1, f"new {(number + 1) % 3}"] for number, key in enumerate(KEYS)}


def test_an_answer_for_an_old_version_of_the_left_row_is_dropped(tester: Tester) -> None:
    flow = joined("join")
    tester.run(flow)
    left, right = flow.group(), flow.group("prices")
    emit(tester, (7, "x"), (8, "y"))
    tester.stop(left)  # the answers wait
    emit(tester, ("a", (1, 7)))
    tester.start(left)
    tester.stop(right)  # the subscriptions wait
    emit(tester, ("a", (2, 8)), ("a", (3, -1)))
    tester.start(right)
    emit(tester, (7, "z"))
    assert rows(tester) == {}


def test_rows_of_one_table_name_each_other(tester: Tester) -> None:
    """The tables may be of one group: here they are one table."""
    flow = Flow("f")
    people = flow.stream(SALES).to_table("people", value=JSON)
    people.join("boss", people, lambda one, boss: boss["name"], on=lambda one: one["boss"]).to_stream().to(
        OUT
    )
    tester.run(flow, partitions=2)
    tester.emit(SALES, "a", {"name": "Ann", "boss": "b"})
    tester.emit(SALES, "b", {"name": "Bob", "boss": "b"})
    assert rows(tester) == {"a": "Bob", "b": "Bob"}
    tester.emit(SALES, "b", {"name": "Ben", "boss": None})
    assert rows(tester) == {"a": "Ben"}


def test_another_join_under_the_same_name_is_refused_at_the_start(tester: Tester) -> None:
    first = joined("join")
    tester.run(first)
    emit(tester, ("a", (1, 7)))
    for group in first.groups:
        tester.leave(group)
        del tester._instances[group.name]
    with pytest.raises(StateMeaningChanged, match="left_join by foreign key"):
        tester.run(joined("left_join"))


# ---- independence of batches and restarts, both sides changing in flight ---------------------------------------------------------

Change = tuple[Any, Any]
changes = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from("ab"), st.one_of(st.none(), st.tuples(st.integers(0, 9), st.integers(-1, 2)))
        ),
        st.tuples(st.integers(0, 2), st.sampled_from([None, "x", "y"])),
    ),
    max_size=20,
)


def expected(events: Iterable[Change], operator: str) -> dict[str, Any]:
    tables = dict(events)
    sales = {key: value for key, value in tables.items() if isinstance(key, str) and value is not None}
    found = {key: [n, tables.get(named)] for key, (n, named) in sales.items()}
    return {key: row for key, row in found.items() if operator == "left_join" or row[1] is not None}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(changes, st.sampled_from(["join", "left_join"]), st.data())
def test_rows_are_those_of_the_definition_however_the_input_is_divided_and_whatever_crashes(
    events: Sequence[Change], operator: str, data: st.DataObject
) -> None:
    flow = joined(operator)
    homes = {key: data.draw(st.sampled_from([-1, 0, 1]), f"the partition of {key}") for key in "ab"}
    with Tester(work_on_request=True) as tester:
        tester.run(flow, partitions=2)
        down: list[Group[Any, Any]] = []
        for event in events:
            emit(tester, event, homes=homes)
            what = data.draw(st.sampled_from(["go on", "go on", "work", "crash", "start"]))
            if what == "crash" and not down:
                down = [data.draw(st.sampled_from(flow.groups))]
                tester.crash(down[0])
            if what in {"work", "crash"}:
                tester.work()
            if what == "start" and down:
                tester.start(down.pop(), disk=data.draw(st.booleans()))
        for group in down:
            tester.work()
            tester.start(group, disk=False)
        tester.work()
        assert rows(tester) == expected(events, operator)
