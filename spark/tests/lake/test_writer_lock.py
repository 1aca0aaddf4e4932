import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streamtable_spark.errors import OtherLake
from streamtable_spark.jobs.writer_lock import writer_lock

WRITES = """
import sys
from streamtable_spark.jobs.writer_lock import writer_lock
with writer_lock(sys.argv[1]):
    print("writes", flush=True)
    sys.stdin.readline()
"""


def writer(lake: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITES, lake],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("ending", [signal.SIGKILL, None])
def test_who_comes_second_says_so_and_writes_when_the_first_has_ended_or_was_killed(
    tmp_path: Path, ending: signal.Signals | None
) -> None:
    lake = f"file://{tmp_path}/my lake"
    with writer(lake) as first:
        assert first.stdout is not None
        assert first.stdin is not None
        assert first.stdout.readline() == "writes\n"
        with writer(lake.removeprefix("file://")) as second:
            assert second.stderr is not None
            assert second.stdout is not None
            assert "another job writes to" in second.stderr.readline()
            os.set_blocking(second.stdout.fileno(), False)
            assert not second.stdout.readline()
            os.set_blocking(second.stdout.fileno(), True)
            if ending is None:
                first.stdin.close()
            else:
                first.send_signal(ending)
            assert second.stdout.readline() == "writes\n"
            second.communicate("\n")


def test_a_lake_in_an_object_store_is_not_waited_for() -> None:
    with writer_lock("s3a://bucket/lake"), writer_lock("s3a://bucket/lake"):
        pass


def test_a_file_in_place_of_a_lake_is_said_to_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("")
    with pytest.raises(OtherLake, match="it is a file: name a folder"), writer_lock(f"{tmp_path}/lake"):
        pass
