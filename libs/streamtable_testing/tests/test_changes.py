"""`Changes`: the old value is the one that the handler got last, also after losses of the joined topic and of disks."""

from typing import Any, ClassVar, Literal

import pytest

from streamtable.base.failpoint import COMMIT_STEPS
from streamtable.base.ports import Codec
from streamtable.base.topics import Stream, Table
from streamtable.codec.plain import Long, String
from streamtable.errors import DeserializationError, StateLost
from streamtable.graph.group import Changes, Group, Input, Join, OnError, Persist
from streamtable.graph.row_change import RowChange
from streamtable.handlers.context import Context
from streamtable_testing import Tester

PRICES = Table("prices", String(), Long())


def group_of(
    *, start: Any = "earliest", refused: Any = lambda _: False, value: Codec[int] | None = None
) -> Group[str, int]:
    """Each row is its price, as the sum of all changes."""

    def add(ctx: Context[str, int], change: RowChange[int]) -> None:
        if refused(change.new):
            ctx.fail("no such price")
        ctx.set((ctx.value or 0) + (change.new or 0) - (change.old or 0))

    table = Table(PRICES.name, String(), value or Long())
    return Group("priced", Changes(table, add, start=start, on_error=OnError.DEAD_LETTER), Persist(Long()))


def prices(tester: Tester, **changes: int | None) -> None:
    for key, value in changes.items():
        data = None if value is None else Long().encode(value)
        tester.emit_raw(PRICES.name, key.encode(), data)


@pytest.fixture
def tester_with_prices(tester: Tester) -> Tester:
    tester.kafka.create_topic(PRICES.name, 1, compacted=True)
    return tester


def lose_disk_and_compact(tester: Tester, group: Group[Any, Any], **changes: int | None) -> None:
    """The group's disk is lost while its rows change, and compaction drops the old rows meanwhile."""
    tester.crash(group)
    prices(tester, **changes)
    tester.kafka.compact(PRICES.name)
    tester.start(group, disk=False)
    tester.advance(60)


def test_a_total_of_changes_is_right_after_a_lost_disk_and_compaction(tester_with_prices: Tester) -> None:
    tester, group = tester_with_prices, group_of()
    tester.run(group)
    prices(tester, a=20)
    lose_disk_and_compact(tester, group, a=10)
    assert tester.table(group) == {"a": 10}


def test_rows_that_were_taken_as_known_are_old_values_after_a_lost_disk_too(
    tester_with_prices: Tester,
) -> None:
    tester, group = tester_with_prices, group_of(start="latest")
    prices(tester, **{f"k{number}": 20 for number in range(7)})
    tester.run(group)
    lose_disk_and_compact(tester, group, k3=25)
    assert tester.table(group) == {"k3": 5}


def test_known_rows_are_copied_in_slices_and_once(
    tester_with_prices: Tester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamtable.engine.named.handled._ROWS_AT_ONCE", 2)
    tester, group = tester_with_prices, group_of(start="latest")
    prices(tester, **{f"k{number}": 20 for number in range(7)})
    tester.run(group)
    tester.stop(group)
    tester.start(group)
    copied = tester.kafka.records("priced-handled")
    rows = {record.key() for _, record in copied} - {PRICES.name.encode()}
    assert len(copied) == len(rows) + 4  # and how far it was, with each slice
    assert sorted(row for row in rows if row is not None) == [b"prices\0k%d" % number for number in range(7)]
    prices(tester, k6=21)
    assert tester.table(group) == {"k6": 1}


@pytest.mark.parametrize("step", COMMIT_STEPS)
def test_known_rows_are_complete_after_a_crash_while_they_are_copied(
    step: str, tester_with_prices: Tester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamtable.engine.named.handled._ROWS_AT_ONCE", 2)
    tester, group = tester_with_prices, group_of(start="latest")
    prices(tester, **{f"k{number}": 20 for number in range(7)})
    tester.crash(group, at=step, times=3)
    tester.run(group)
    tester.start(group, disk=False)
    tester.advance(60)
    prices(tester, **{f"k{number}": 21 for number in range(7)})
    assert tester.table(group) == {f"k{number}": 1 for number in range(7)}


def test_a_row_that_cannot_be_decoded_is_not_taken_as_known(tester_with_prices: Tester) -> None:
    tester, group = tester_with_prices, group_of(start="latest")
    tester.emit_raw(PRICES.name, b"a", b"no long")
    tester.run(group)
    prices(tester, a=5)
    assert tester.table(group) == {"a": 5}


def test_a_deleted_row_has_no_old_value_when_it_comes_back(tester_with_prices: Tester) -> None:
    tester, group = tester_with_prices, group_of()
    tester.run(group)
    prices(tester, a=20)
    prices(tester, a=None)
    lose_disk_and_compact(tester, group, a=7)
    assert tester.table(group) == {"a": 7}


def test_a_refused_change_is_no_old_value_and_has_one_when_it_is_sent_again(
    tester_with_prices: Tester,
) -> None:
    refused = {20}
    tester, group = tester_with_prices, group_of(refused=refused.__contains__)
    tester.run(group)
    prices(tester, a=5)
    prices(tester, a=20)
    assert tester.table(group) == {"a": 5}
    refused.clear()
    (letter,) = tester.dead_letters(group)
    tester.retry(group, letter)
    assert tester.table(group) == {"a": 20}
    prices(tester, a=21)
    assert tester.table(group) == {"a": 21}


class Forgetful(Long):
    """A codec that cannot read some values any more."""

    unreadable: ClassVar[set[int]] = set()

    def decode(self, data: bytes) -> int:
        value = super().decode(data)
        if value in self.unreadable:
            raise DeserializationError(f"{value} is not readable")
        return value


def test_an_old_value_that_became_unreadable_makes_a_dead_letter_and_is_never_none(
    tester_with_prices: Tester, monkeypatch: pytest.MonkeyPatch
) -> None:
    tester, group = tester_with_prices, group_of(value=Forgetful())
    tester.run(group)
    prices(tester, a=5)
    monkeypatch.setattr(Forgetful, "unreadable", {5})
    prices(tester, a=6)
    (letter,) = tester.dead_letters(group)
    assert "5 is not readable" in letter.reason
    assert tester.table(group) == {"a": 5}
    monkeypatch.setattr(Forgetful, "unreadable", set())
    tester.retry(group, letter)
    assert tester.table(group) == {"a": 6}


def test_a_group_whose_handled_values_were_deleted_refuses_to_start(tester_with_prices: Tester) -> None:
    tester, group = tester_with_prices, group_of()
    tester.run(group)
    prices(tester, a=20)
    tester.stop(group)
    tester.kafka.delete_topic("priced-handled")
    tester.kafka.create_topics_of(group)
    with pytest.raises(StateLost, match="priced-handled"):
        tester.start(group)


def test_changes_are_the_records_of_the_table_s_topic_also_those_that_change_nothing(tester: Tester) -> None:
    seen: list[tuple[int | None, int | None]] = []

    def keep(ctx: Context[str, int], price: int) -> None:
        if price == 0:
            ctx.delete()
        else:
            ctx.set(price)

    given = Stream("given", String(), Long())
    writer = Group("writer", Input(given, keep), Persist(Long()))
    note: Any = lambda ctx, change: seen.append((change.old, change.new))  # noqa: E731 - as short as it is
    tester.run(writer, Group("reader", Changes(writer.table, note), Persist(Long())))
    for price in (0, 1, 1):
        tester.emit(given, "a", price)
    tester.emit_many(given, [("a", 2), ("a", 0), ("a", 3)])  # handled in one commit
    assert seen == [(None, None), (None, 1), (1, 1), (1, 3)]


@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_rows_that_were_joined_before_their_changes_were_handled_are_known(
    tester_with_prices: Tester, start: Literal["latest", "earliest"]
) -> None:
    tester, table = tester_with_prices, Table(PRICES.name, String(), Long())
    seen: list[tuple[int | None, int | None]] = []
    note: Any = lambda ctx, change: seen.append((change.old, change.new))  # noqa: E731 - as short as it is
    asked: Any = Input(Stream("asked", String(), Long()), lambda ctx, value: None)
    joining = Group("g", asked, Join(table), Persist(Long()))
    prices(tester, a=1)
    tester.run(joining)
    tester.stop(joining)
    prices(tester, b=2)
    tester.start(Group("g", asked, Changes(table, note, start=start), Persist(Long())))
    prices(tester, a=9)
    assert (1, 9) in seen
    assert (None, 1) not in seen
