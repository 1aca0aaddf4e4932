"""Rebuilds that are killed at each of their steps, and the runs that resume them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from spark.tests.groups.halted_rebuild import HALF
from spark.tests.groups.jobs import Jobs, source

from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.manifest import Manifest, load
from streamtable_spark.jobs.source import Source
from streamtable_spark.replay import program_of

pytestmark = pytest.mark.timeout(1200)  # five starts of Spark, one after another
PROGRAM = Path(__file__).with_name("halted_rebuild.py")
POINTS = ("begun", HALF, "written", "read back", "committed")


class Crashed(Exception):
    pass


@contextmanager
def rebuild_at(point: str, jobs: Jobs, as_group: str, *more: str) -> Iterator[None]:
    """A rebuild that stops at a point, and is killed in the end with SIGKILL, with all its children."""
    arguments = [sys.executable, str(PROGRAM), point, *jobs.arguments(as_group, "--cores", "1", *more)]
    brief = {
        "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1"
    }  # Java's second compiler does not pay for a minute
    with subprocess.Popen(
        arguments,
        env={**os.environ, **brief},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            if point == HALF:
                with Cluster(jobs.stage.servers) as cluster:
                    table = {f"{as_group}-table": 3}
                    jobs.stage.wait(lambda: cluster.ends(table)[f"{as_group}-table"][1] > 0, 240)
                    assert cluster.stable_ends(table)[f"{as_group}-table"][1] == 0, "no reader sees it"
            else:
                assert child.stdout.readline().strip() == point, child.stderr.read()
            assert child.poll() is None
            yield
        finally:
            os.killpg(child.pid, signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL


def crash_at(point: str, jobs: Jobs, as_group: str) -> None:
    """Crash a rebuild at a point in the process of the test, without a start of Spark."""

    def crash(reached: str) -> None:
        if reached == point:
            raise Crashed

    with pytest.raises(Crashed):
        jobs.rebuild(as_group, crash)


@pytest.mark.faults_long  # three minutes
@pytest.mark.parametrize("graph", [None, "click_count.topics:by_record"], ids=["by Spark", "by handlers"])
def test_a_rebuild_that_is_killed_at_each_of_its_steps_in_turn_is_taken_up_and_makes_one_table(
    jobs: Jobs, stage: Any, graph: str | None
) -> None:
    more = [] if graph is None else ["--graph", graph]
    group = source() if graph is None else Source("click-count", program_of(graph, "click-count"))
    stage.clicks(200)
    stage.clicks(30, committed=False)
    stage.group("v2")
    frozen = dict(stage.truth)

    def state() -> Manifest:
        found = load(jobs.manifest("v2"))
        assert found is not None
        return found

    for point in POINTS:
        with rebuild_at(point, jobs, "v2", *more):
            assert state().state == "begun"
        stage.clicks(20)  # later records belong to the processor
        if point == HALF:
            some = stage.table("v2")
            assert 0 < len(some) < len(frozen), "partition 0 alone is there"
    with Cluster(stage.servers) as cluster:
        committed = cluster.committed("v2", {"user-clicks": 3})
    assert sum(each.next_offset for each in committed.values() if each) > 0, "the manifest alone was missing"

    done = jobs.rebuild("v2", of=group)
    assert stage.table("v2") == frozen
    assert len(stage.records("v2-table")) == len(frozen), "existing rows are not written again"
    assert done.counts == {"events": 200, "unfit": 0}
    assert state() == done
    assert done.state == "done"
    assert sum(each["rows"] for each in done.table.values()) == len(frozen)


def test_a_rebuild_that_was_ended_halfway_is_not_mixed_with_anything_else(
    jobs: Jobs, stage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def said() -> str:
        return capsys.readouterr().err.splitlines()[-1]

    stage.clicks(30)
    stage.group("v2")
    stage.group("v3")
    crash_at("begun", jobs, "v2")
    assert jobs.refused("v2", "--until", '{"user-clicks": {"0": 0, "1": 0, "2": 0}}') == 2
    assert "is of a rebuild to other offsets of user-clicks, not finished" in said()
    jobs.manifest("v3").write_text(jobs.manifest("v2").read_text())
    assert jobs.refused("v3") == 2
    assert "is of another rebuild (click-count as v2, not finished)" in said()
    stage.commit("v2", "user-clicks")
    assert jobs.refused("v2") == 2
    assert "group 'v2' has gone on since its rebuild" in said()


def test_a_group_that_comes_to_life_while_its_table_is_rebuilt_keeps_its_offsets(
    jobs: Jobs, stage: Any
) -> None:
    """Its own processor would not start: there is a table without offsets. Another client can be in the group."""
    stage.clicks(30)
    stage.group("v2")
    with (
        pytest.raises(ConfigurationError, match=r"group 'v2' has 1 live member \(other-client on"),
        stage.member("v2") as join,
    ):
        jobs.rebuild("v2", lambda reached: join() if reached == "read back" else None)
    with Cluster(stage.servers) as cluster:
        assert set(cluster.committed("v2", {"user-clicks": 3}).values()) == {None}
