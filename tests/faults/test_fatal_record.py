"""A record that crashes every process that handles it, without an exception, is named in the log and can be skipped."""

import signal
import subprocess
import sys

import pytest
from tests.faults.arena import Arena, wait_until
from tests.faults.aside import ArenaMaker, aside
from tests.faults.oracle import parts
from tests.faults.worker import FATAL

from streamtable.base.partitioner import partition_for
from streamtable.codec.plain import Long

DEATHS_MAX = 12
DIED = "the previous process died while it handled these records"


def skip(arena: Arena, partition: int, offset: int) -> None:
    """Skip the record with the command line, once the killed process is no longer a member."""
    command = [sys.executable, "-m", "streamtable_cli", "--bootstrap-servers", arena.kafka.bootstrap_servers]
    command += ["group", "skip", arena.group.name, arena.input, str(partition), str(offset), "--yes"]
    said: list[str] = []

    def done() -> bool:
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
        said.append(ended.stdout + ended.stderr)
        return ended.returncode == 0

    try:
        wait_until(done, "the record is skipped", 40)
    except AssertionError as error:
        error.add_note(said[-1])
        raise


# Each death costs a session timeout until the next process gets the partition.
@pytest.mark.faults_long
@pytest.mark.timeout(400)
@aside
def test_a_record_that_kills_the_process_is_named_after_some_deaths_and_can_be_skipped(
    make: ArenaMaker,
) -> str:
    arena = make(kind="fatal", events=1_200)
    first, second = parts(arena.events, 2)
    key = arena.keys[0]
    place = partition_for(key.encode(), arena.partitions)
    arena.feed([*first, (key, FATAL), *second])
    killers = [
        change.offset
        for change in arena.records(arena.input)[place]
        if change.value is not None and Long().decode(change.value) == FATAL
    ]
    process = arena.start("a")
    deaths = 0
    while True:
        deaths += 1
        assert process.wait_end(60) == -signal.SIGSEGV
        process.start()
        process.wait_log(DIED)
        said = next(event for event in process.events(since_start=True) if event["event"] == DIED)
        assert (said["topic"], said["partition"]) == (arena.input, place)
        assert said["first_offset"] <= killers[0] <= said["last_offset"]
        if said["first_offset"] == said["last_offset"]:
            break
        assert deaths < DEATHS_MAX, f"the record is not identified after this many deaths: {said}"
    process.kill()
    skip(arena, place, killers[0])
    process.start()
    arena.wait_handled()
    arena.finish()
    letters = arena.records(arena.group.dead_letters)[place]
    assert len(letters) == 1
    arena.verify()
    return f"{deaths} deaths"
