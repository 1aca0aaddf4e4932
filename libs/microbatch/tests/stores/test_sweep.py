"""The rows that a sweep removes and those that it keeps; `test_simulation` shows that owners do not notice."""

from collections.abc import Callable

import pytest

from microbatch.stores.memory import MemoryDriver
from microbatch.stores.port import Deletion, Driver, Row, SweepDriver
from microbatch.stores.store import RemoteStore
from microbatch.stores.sweep import NOTES_KEY, Swept, may_go, sweep
from microbatch.stores.versions import ABSENT, PLAIN, Ledger, Version, VersionedCell, WriteId, ledger_key
from streamtable.errors import ConfigurationError

MakeDriver = Callable[[str], Driver]
DAY = 86_400.0
LATER = 2 * DAY
SWEEPABLE = ["memory", "valkey", "redis", pytest.param("elasticsearch", marks=pytest.mark.broker)]


class Tenant:
    """Rows of one tenant, written as owners of partitions write them."""

    def __init__(self, driver: Driver) -> None:
        assert isinstance(driver, SweepDriver)
        self.driver = driver
        self.store = RemoteStore(driver, deadline=60, attempt=20)

    def ledger(self, partition: int, epoch: int, **ends: int) -> None:
        ledger = Ledger(epoch, {int(name[1:]): end for name, end in ends.items()})
        self.store.put_many({ledger_key(partition): ledger.encode()}, ledger.opening)

    def cell(self, key: bytes, write_id: WriteId, value: bytes | None, partition: int = 0) -> None:
        cell = VersionedCell(Version(write_id, value), Version(WriteId(1, 1), b"before"), partition)
        self.store.put_many({key: cell.encode()}, write_id.number)

    def sweep(self, now: float, *, keep: bool = False) -> Swept:
        self.store.flush()
        return sweep(self.driver, self.store, after=DAY, now=now, keep=keep)


@pytest.fixture
def rows(make_driver: MakeDriver, tenant: str) -> Tenant:
    return Tenant(make_driver(tenant))


@pytest.fixture
def memory() -> Tenant:
    return Tenant(MemoryDriver(tenant="t"))


def test_plain_rows_are_not_swept(memory: Tenant) -> None:
    memory.store.put_many(
        {ledger_key(0): PLAIN, b"r/a": b"\x02\x00" + bytes(30)}, None
    )  # it looks like a deletion
    with pytest.raises(ConfigurationError, match="the rows of the tenant are plain"):
        memory.sweep(DAY)


@pytest.mark.parametrize("make_driver", SWEEPABLE, indirect=True)
def test_a_committed_deletion_is_removed_a_day_after_it_was_recorded(rows: Tenant) -> None:
    rows.ledger(0, 3, t1=1, t2=5)
    rows.cell(b"gone", WriteId(2, 5), None)
    rows.cell(b"never committed", WriteId(2, 6), None)
    rows.cell(b"there", WriteId(2, 5), b"value")
    rows.cell(b"of the owner", WriteId(3, 1), None)
    assert rows.sweep(0) == Swept(deletions=3, may_go=0, removed=0, waits_for=DAY)
    assert rows.sweep(DAY - 1) == Swept(deletions=3, may_go=0, removed=0, waits_for=1)
    assert rows.sweep(LATER, keep=True) == Swept(deletions=3, may_go=1, removed=0, waits_for=0)
    assert rows.sweep(LATER) == Swept(deletions=3, may_go=1, removed=1, waits_for=0)
    left = rows.store.get_many([b"gone", b"never committed", b"there", b"of the owner"])
    assert left.keys() == {b"never committed", b"there", b"of the owner"}
    assert rows.sweep(LATER + 1).deletions == 2


@pytest.mark.parametrize("make_driver", SWEEPABLE, indirect=True)
def test_a_row_that_was_written_meanwhile_stays(rows: Tenant) -> None:
    rows.cell(b"a", WriteId(2, 5), None)
    rows.cell(b"b", WriteId(2, 5), None)
    rows.store.flush()
    (found,) = [each for page in rows.driver.deletions(30) for each in page if each.key == b"a"]
    assert found == Deletion(b"a", WriteId(2, 5).number, 0)
    rows.cell(b"a", WriteId(2, 6), b"new")
    assert rows.driver.forget([found, Deletion(b"b", WriteId(2, 5).number, 0)], 30) == 1
    assert rows.store.get_many([b"a", b"b"]).keys() == {b"a"}
    assert rows.driver.forget([], 30) == 0


@pytest.mark.parametrize("make_driver", SWEEPABLE, indirect=True)
def test_the_owner_can_write_after_a_sweep(rows: Tenant) -> None:
    rows.ledger(0, 3, t2=5)
    rows.cell(b"a", WriteId(2, 5), None)
    rows.sweep(0)
    rows.sweep(LATER)
    assert rows.store.get(b"a") is None
    rows.cell(b"a", WriteId(3, 1), b"new")
    row = rows.store.get(b"a")
    assert row is not None
    assert row.number == WriteId(3, 1).number


@pytest.mark.parametrize("make_driver", SWEEPABLE, indirect=True)
def test_thousands_of_rows_are_swept_in_pages_and_other_tenants_are_kept(
    rows: Tenant, make_driver: MakeDriver, tenant: str
) -> None:
    other = Tenant(make_driver(tenant + ".other"))
    deleted = VersionedCell(Version(WriteId(2, 5), None), ABSENT, 7).encode()
    keys = [b"%d" % at for at in range(2_500)] + [b"k" * 4000]
    for each in (rows, other):
        each.ledger(7, 3, t2=5)
        each.store.put_many(dict.fromkeys(keys, deleted), WriteId(2, 5).number)
    rows.sweep(0)
    swept = rows.sweep(LATER)
    assert swept.removed == len(keys)
    assert rows.store.get_many(keys) == {}
    assert len(other.store.get_many(keys)) == len(keys)


def test_partitions_are_judged_by_their_own_ledgers(memory: Tenant) -> None:
    memory.ledger(0, 9, t2=5)
    memory.ledger(1, 9, t2=4)
    memory.ledger(2, 2)
    for partition in range(4):  # of the last one there is no ledger
        memory.cell(b"%d" % partition, WriteId(2, 5), None, partition)
    memory.sweep(0)
    assert memory.sweep(LATER).removed == 1
    assert memory.store.get(b"0") is None


def test_a_deletion_under_the_current_epoch_is_kept_until_a_later_sweep(memory: Tenant) -> None:
    memory.ledger(0, 2, t1=1)
    memory.cell(b"a", WriteId(2, 5), None)
    memory.sweep(0)
    memory.ledger(0, 3, t1=1, t2=5)
    assert memory.sweep(LATER).removed == 0
    assert memory.sweep(2 * LATER).removed == 1


def test_after_the_clock_went_back_nothing_is_removed(memory: Tenant) -> None:
    memory.ledger(0, 3, t2=5)
    memory.cell(b"a", WriteId(2, 5), None)
    memory.sweep(LATER)
    assert memory.sweep(0).removed == 0
    assert memory.sweep(DAY - 1).removed == 0


def test_daily_sweeps_keep_the_records_of_a_day(memory: Tenant) -> None:
    memory.ledger(0, 3, t2=5)
    memory.cell(b"a", WriteId(2, 6), None)
    for hour in range(300):
        memory.sweep(hour * 3600.0)
    notes = memory.store.get(NOTES_KEY)
    assert isinstance(notes, Row)
    assert len(notes.data) < 25 * 40


def test_a_sweep_with_too_short_a_wait_is_rejected(memory: Tenant) -> None:
    with pytest.raises(ConfigurationError, match="3600 s at least"):
        sweep(memory.driver, memory.store, after=60, now=0)


@pytest.mark.parametrize(
    ("deletion", "over", "goes"),
    [
        (WriteId(2, 5), {0: 3}, True),
        (WriteId(2, 6), {0: 3}, False),
        (WriteId(2, 5), {0: 2}, False),
        (WriteId(2, 5), {1: 3}, False),
        (WriteId(1, 1), {0: 3}, False),
    ],
    ids=["old and counts", "does not count", "its epoch was not over", "not noted", "nothing committed"],
)
def test_a_row_may_be_removed_if_its_deletion_is_committed_and_its_epoch_was_over_when_recorded(
    deletion: WriteId, over: dict[int, int], *, goes: bool
) -> None:
    assert may_go(Deletion(b"a", deletion.number, 0), Ledger(4, {2: 5}), over) is goes
