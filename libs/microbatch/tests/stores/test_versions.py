"""The rules that decide which of two versions is committed; `test_simulation` shows that they suffice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microbatch.stores.port import LARGEST_NUMBER, Row
from microbatch.stores.versions import (
    ABSENT,
    HEAD_BYTES,
    NOTHING,
    UNOWNED,
    CommittedState,
    Head,
    Ledger,
    Version,
    VersionedCell,
    WriteId,
    replace,
    reset_error,
)
from streamtable.errors import Migrated, StateLost

epochs = st.integers(0, (1 << 31) - 1)
write_ids = st.builds(WriteId, epochs, st.integers(0, (1 << 32) - 1))
values = st.none() | st.binary(max_size=50)
cells = st.builds(
    VersionedCell,
    st.builds(Version, write_ids, values),
    st.builds(Version, write_ids, values),
    st.integers(0, (1 << 31) - 1),
)
LEDGER = Ledger(4, {1: 5, 3: 1, 4: 2})


def row(cell: VersionedCell) -> Row:
    return Row(cell.current.write_id.number, cell.encode())


@given(write_ids, write_ids)
def test_numbers_have_the_order_of_their_write_ids_and_fit_into_63_bits(one: WriteId, other: WriteId) -> None:
    assert (one.number < other.number) == (one < other)
    assert 0 <= one.number <= LARGEST_NUMBER
    assert WriteId.of(one.number) == one


@given(cells)
def test_a_cell_comes_back_as_it_was(cell: VersionedCell) -> None:
    assert VersionedCell.decode(row(cell)) == cell


@given(cells, st.data())
def test_a_cut_or_foreign_row_is_refused_or_is_a_shorter_previous_value(
    cell: VersionedCell, data: st.DataObject
) -> None:
    whole = cell.encode()
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    try:
        found = VersionedCell.decode(Row(7, cut))
    except StateLost:
        return
    # The only part without a stored length; stores do not truncate rows.
    assert (cell.previous.value or b"").startswith(found.previous.value or b"")


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"\x01" + bytes(17), b"\x02\x04" + bytes(16), b"\x02\x00" + bytes(16) + b"x"]
)
def test_foreign_data_in_a_row_stops_the_process(data: bytes) -> None:
    with pytest.raises(StateLost, match="another program writes"):
        VersionedCell.decode(Row(1, data))


@pytest.mark.parametrize(
    ("write_id", "counts"),
    [
        (NOTHING, True),
        (WriteId(1, 1), True),
        (WriteId(1, 5), True),
        (WriteId(1, 6), False),
        (WriteId(2, 1), False),
        (WriteId(3, 1), True),
        (WriteId(3, 2), False),
        (WriteId(4, 0), False),
        (WriteId(4, 2), True),
        (WriteId(4, 3), False),
    ],
)
def test_a_version_counts_up_to_the_last_committed_batch_of_its_epoch(
    write_id: WriteId, *, counts: bool
) -> None:
    assert LEDGER.counts(write_id) is counts


def test_the_newest_version_that_counts_is_read() -> None:
    before = Version(WriteId(1, 5), b"old")
    assert LEDGER.read(None) == ABSENT
    assert LEDGER.read(row(VersionedCell(Version(WriteId(4, 1), b"new"), before, 0))).value == b"new"
    assert LEDGER.read(row(VersionedCell(Version(WriteId(1, 6), b"new"), before, 0))) == before
    assert LEDGER.read(row(VersionedCell(Version(WriteId(2, 1), b"new"), ABSENT, 0))) == ABSENT


def test_a_row_of_a_later_owner_ends_this_one() -> None:
    with pytest.raises(Migrated, match="epoch 5, ours is 4"):
        LEDGER.read(row(VersionedCell(Version(WriteId(5, 1), b""), ABSENT, 0)))


def test_a_row_in_which_neither_version_counts_stops_the_process() -> None:
    with pytest.raises(StateLost, match="clear the tenant"):
        LEDGER.read(row(VersionedCell(Version(WriteId(4, 3), b""), Version(WriteId(2, 9), b""), 0)))


def test_deleting_a_missing_row_writes_nothing() -> None:
    assert replace(ABSENT, WriteId(1, 1), None, 0) is None
    assert replace(Version(WriteId(1, 1), None), WriteId(1, 2), None, 0) is None
    assert replace(ABSENT, WriteId(1, 1), b"x", 7) == VersionedCell(Version(WriteId(1, 1), b"x"), ABSENT, 7)


@given(cells)
def test_the_head_of_a_cell_has_its_partition_and_whether_it_is_deleted(cell: VersionedCell) -> None:
    data = cell.encode()
    assert Head.of(data[:HEAD_BYTES]) == Head.of(data) == (cell.partition, cell.current.value is None)


def test_the_encoding_of_a_cell_is_stable() -> None:
    cell = VersionedCell(Version(WriteId(1, 2), b"new"), Version(WriteId(1, 1), b"old"), 7)
    held = bytes.fromhex("0203000000070000000100000001000000036e65776f6c64")
    assert cell.encode() == held
    assert VersionedCell.decode(Row(WriteId(1, 2).number, held)) == cell


@pytest.mark.parametrize("data", [b"", b"{}", b"\x02" + bytes(HEAD_BYTES - 2), b"\x01" + bytes(HEAD_BYTES)])
def test_other_data_has_no_head(data: bytes) -> None:
    assert Head.of(data) is None


def opened(ledger: Ledger) -> Row:
    return Row(ledger.opening, ledger.encode())


def test_the_first_owner_opens_epoch_1() -> None:
    ledger = Ledger.open(UNOWNED, None)
    assert ledger == Ledger(1, {})
    assert ledger.committed_state == CommittedState(1, NOTHING)
    assert ledger.next_write_id == WriteId(1, 1)
    assert ledger.committed().counts(WriteId(1, 1))
    assert ledger.committed().committed_state == CommittedState(1, WriteId(1, 1))


def test_an_owner_adds_the_commits_of_the_last_one_and_takes_the_next_epoch() -> None:
    before = Ledger(3, {1: 5})
    after = Ledger.open(before.committed().committed_state, opened(before))
    assert after == Ledger(4, {1: 5, 3: 1})
    assert after.committed_state == CommittedState(4, WriteId(3, 1))


def test_an_epoch_without_a_commit_leaves_nothing_in_the_ledger() -> None:
    before = Ledger(2, {1: 5})
    assert Ledger.open(before.committed_state, opened(before)) == Ledger(3, {1: 5})


def test_the_metadata_keep_the_end_that_is_not_in_the_ledgers_row_yet() -> None:
    before = Ledger(1, {})
    first = Ledger.open(before.committed().committed_state, opened(before))
    second = Ledger.open(first.committed_state, opened(before))  # the first owner died after its proof
    assert second == Ledger(3, {1: 1})


def test_the_last_epoch_and_the_last_batch_of_it_are_those_whose_number_is_the_largest() -> None:
    last_epoch, last_batch = (1 << 31) - 1, (1 << 32) - 1
    ledger = Ledger.open(CommittedState(last_epoch - 1, NOTHING), None)
    assert ledger.epoch == last_epoch
    with pytest.raises(AssertionError):
        Ledger.open(CommittedState(last_epoch, NOTHING), None)
    full = Ledger(last_epoch, {last_epoch: last_batch - 1}).committed()
    assert full.counts(WriteId(last_epoch, last_batch))
    assert WriteId(last_epoch, last_batch).number == LARGEST_NUMBER
    with pytest.raises(AssertionError):
        full.committed()


def test_a_store_that_has_lost_its_rows_stops_the_process() -> None:
    with pytest.raises(StateLost, match="ledger is at epoch 0, batches are committed under 3"):
        Ledger.open(CommittedState(3, WriteId(3, 1)), None)
    with pytest.raises(StateLost, match="ledger is at epoch 2, batches are committed under 3"):
        Ledger.open(CommittedState(7, WriteId(3, 1)), opened(Ledger(2, {})))


def test_a_ledger_ahead_of_the_offsets_is_a_later_owner_or_reset_offsets() -> None:
    ahead = opened(Ledger(1, {}))
    with pytest.raises(Migrated):
        Ledger.open(UNOWNED, ahead)
    assert "offsets were reset" in str(reset_error(ahead, UNOWNED))
