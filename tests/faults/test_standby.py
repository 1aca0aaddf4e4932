"""Owners that are killed while others keep standby replicas of their partitions."""

import pytest
from tests.faults.arena import Arena, Process, wait_until
from tests.faults.aside import ArenaMaker, aside
from tests.faults.oracle import parts

from streamtable.errors import StoreInUse
from streamtable.store.rocksdb import RocksStores
from streamtable.tables.position import LocalPosition

PARTITIONS = 6
LOAD_SECONDS = 4.0

pytestmark = pytest.mark.faults


def wait_copied(arena: Arena, process: Process) -> None:
    """Wait until the process has a store of every partition."""
    folder = process.state / arena.group.name / arena.table
    wait_until(
        lambda: all((folder / str(p) / "rows").exists() for p in range(arena.partitions)),
        f"copies in {folder}",
    )


def loaded(process: Process, skip: int) -> int:
    """Return the number of offsets its recoveries had to read; `skip`: the number of log lines to skip."""
    return sum(event["offsets"] for event in process.events()[skip:] if event["event"] == "table is loading")


@aside
def test_what_a_killed_owner_had_goes_on_from_a_warm_copy(make: ArenaMaker) -> str:
    arena = make(kind="order", partitions=PARTITIONS, standby=True)
    first, second, third = parts(arena.events, 3)
    owner, heir = arena.start("owner"), arena.start("heir")
    wait_until(lambda: bool(owner.at_work() and heir.at_work()), "both run tasks")
    arena.wait_at_work()
    arena.feed(first)
    wait_copied(arena, heir)
    arena.wait_handled()
    load = arena.load(LOAD_SECONDS, second)
    wait_until(lambda: arena.handled() > len(first) + len(second) / 2, "half of the input is handled")
    inherited, before = owner.at_work(), len(heir.events())
    assert inherited
    owner.kill()
    load.finish()
    wait_until(lambda: heir.at_work() >= inherited, "the new owner runs the tasks")
    read = loaded(heir, before)
    arena.start("owner")
    arena.feed(third)
    arena.wait_handled()
    arena.finish()
    written = sum(
        changes[-1].offset + 1
        for p, changes in arena.records(arena.table).items()
        if p in inherited and changes
    )
    verdict = arena.verify()
    # The replica lacks the last commit or two; the total number of commits depends on the machine.
    assert read < written / 3, f"{read} offsets were read, of a changelog of {written}"
    return (
        f"{read} offsets read for {len(inherited)} partitions, of {written}; {verdict.copies} copies are good"
    )


@aside
def test_workers_that_share_a_folder_give_each_other_the_copies_that_they_need(make: ArenaMaker) -> str:
    arena = make(kind="order", partitions=PARTITIONS, standby=True)
    shared = arena.folder / "shared"
    first, second, third = parts(arena.events, 3)
    workers = [arena.start(name, state=shared) for name in ("one", "two")]
    elsewhere = arena.start("elsewhere")
    wait_until(lambda: all(p.at_work() for p in (*workers, elsewhere)), "all three run tasks")
    arena.wait_at_work()
    arena.feed(first)
    wait_copied(arena, workers[0])  # together they have all partitions
    arena.feed(second)
    elsewhere.kill()
    wait_until(
        lambda: sum(len(w.at_work()) for w in workers) == PARTITIONS, "the workers have all partitions"
    )
    waits = sum(worker.log.count("recovery waits for the state folder") for worker in workers)
    arena.feed(third)
    arena.wait_handled()
    arena.finish()
    arena.verify()
    return f"{waits} waits for a folder"


@pytest.mark.faults_long("partitions move there and back; the copy of a killed owner is the short form")
@aside
def test_a_partition_that_comes_back_reads_only_what_was_missed(make: ArenaMaker) -> str:
    arena = make(kind="order", partitions=PARTITIONS)
    first, second, third = parts(arena.events, 3)
    stays = arena.start("stays")
    stays.wait_joined()
    arena.feed(first)
    arena.wait_handled()
    guest = arena.start("guest")
    wait_until(lambda: bool(guest.at_work()), "the second process runs a task")
    arena.wait_at_work()
    lent, before = guest.at_work(), len(stays.events())
    at_leaving = kept(arena, stays, lent)
    arena.feed(second)
    arena.wait_handled()
    guest.stop()
    arena.wait_at_work()
    read = loaded(stays, before)
    ends = {p: changes[-1].offset + 1 for p, changes in arena.records(arena.table).items() if changes}
    missed = sum(ends[p] - at_leaving[p] for p in lent)
    arena.feed(third)
    arena.wait_handled()
    arena.finish()
    arena.verify()
    assert 0 < read <= missed < sum(ends[p] for p in lent)
    return f"{read} offsets read for {len(lent)} partitions, {missed} missed of {sum(ends[p] for p in lent)}"


def kept(arena: Arena, process: Process, partitions: set[int]) -> dict[int, int]:
    """Return the changelog positions of the stores that a process has closed and left on its disk."""
    found: dict[int, int] = {}

    def look() -> bool:
        stores = RocksStores(process.state / arena.group.name, memory_bytes=8 << 20)
        try:
            for partition in partitions - found.keys():
                checkpoint = stores.open(arena.table, partition, spare=True).checkpoint()
                found[partition] = LocalPosition.decode(checkpoint).changelog if checkpoint else 0
        except StoreInUse:
            return False  # still being closed
        finally:
            stores.close()
        return True

    wait_until(look, "the stores that were left can be read")
    return found
