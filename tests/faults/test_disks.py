"""Disks that are full, damaged or taken."""

import random

import pytest
from tests.faults.arena import Process, wait_until
from tests.faults.aside import ArenaMaker, aside
from tests.faults.full_disk import BALLAST, fill, small_disk
from tests.faults.oracle import parts
from tests.faults.worker import EXIT_GAVE_UP

from streamtable.errors import StoreInUse
from streamtable.store.rocksdb import RocksStores

pytestmark = pytest.mark.faults

BIG_SST_BYTES = 1_000


@pytest.mark.needs_mount
@aside
def test_a_full_disk_stops_the_process_and_more_room_lets_it_go_on(make: ArenaMaker) -> None:
    # Many rows: RocksDB preallocates its log, and that space must be used up too.
    arena = make(partitions=2, keys_per_partition=2_000, events=120_000)
    first, second, third = parts(arena.events, 3)
    with small_disk(24) as disk:
        process = arena.start("a", state=disk / "state")
        arena.feed(first)
        arena.wait_handled()
        fill(disk)
        arena.feed(second)
        assert process.wait_end() == EXIT_GAVE_UP
        said = process.log.strip().splitlines()[-1]
        assert said.startswith("StoreBroken: ")
        assert "No space left" in process.log
        (disk / BALLAST).unlink()
        process.start()
        arena.feed(third)
        arena.wait_handled()
        arena.finish()
        arena.verify()


@aside
def test_a_damaged_table_is_loaded_again_loudly_and_is_right_afterwards(make: ArenaMaker) -> None:
    arena = make(keys_per_partition=50)
    first, second, third = parts(arena.events, 3)
    process = arena.start("a")
    arena.feed(first)
    arena.wait_handled()
    arena.finish()
    # Reopening moves the rows from the write-ahead log to a table file.
    process.start()
    arena.feed(second)
    arena.wait_handled()
    arena.finish()
    rng = random.Random(arena.seed)
    files = sorted(file for file in process.state.rglob("*.sst") if file.stat().st_size > BIG_SST_BYTES)
    assert files, "no table file was written"
    for file in files:
        content = bytearray(file.read_bytes())
        content[rng.randrange(64)] ^= 1 << rng.randrange(8)  # in the first block of rows
        file.write_bytes(content)
    process.start()
    arena.feed(third)
    arena.wait_handled()
    arena.finish()
    arena.verify()
    damaged = [
        event for event in process.events() if "damaged" in event["event"] or "discarded" in event["event"]
    ]
    assert damaged, "the damage was not noticed"


@aside
def test_a_second_owner_of_a_folder_is_refused_and_the_first_goes_on(make: ArenaMaker) -> None:
    arena = make()
    first, second = parts(arena.events, 2)
    process = arena.start("a")
    arena.feed(first)
    arena.wait_handled()
    intruder = RocksStores(process.state / arena.group.name)
    with pytest.raises(StoreInUse, match=f"held by pid {process.child.pid}"):
        intruder.open(arena.table, 0)
    with pytest.raises(StoreInUse, match=f"held by pid {process.child.pid}"):
        intruder.destroy(arena.table, 0)
    intruder.close()
    arena.feed(second)
    arena.wait_handled()
    arena.finish()
    arena.verify()


@pytest.mark.faults_long
@aside
def test_a_process_on_the_folder_of_a_frozen_one_gives_up_and_the_frozen_one_goes_on(
    make: ArenaMaker,
) -> None:
    arena = make()
    first, second = parts(arena.events, 2)
    owner = arena.start("a")
    arena.feed(first)
    arena.wait_handled()
    owner.child.pause()
    heir: Process = arena.start("b", state=owner.state)
    arena.feed(second)
    assert heir.wait_end(60) == EXIT_GAVE_UP
    said = heir.log.strip().splitlines()[-1]
    assert said.startswith("StoreInUse: ")
    assert f"held by pid {owner.child.pid}" in said
    owner.child.resume()
    del arena.processes["b"]
    arena.wait_handled()
    arena.finish()
    arena.verify()


@pytest.mark.faults_long("test_standby.py has workers that share a folder")
@aside
def test_two_processes_that_share_a_folder_hand_their_partitions_over(make: ArenaMaker) -> None:
    arena = make()
    first, second = parts(arena.events, 2)
    one = arena.start("a")
    arena.feed(first)
    arena.wait_handled()
    other = arena.start("b", state=one.state)
    wait_until(lambda: len(other.at_work()) == arena.partitions // 2, "half of the partitions with each")
    arena.feed(second)
    arena.wait_handled()
    arena.finish()
    del arena.processes["b"]  # the shared disk is checked once
    arena.verify()
