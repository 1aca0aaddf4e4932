"""A join of two topics of clicks with the library: all groups of its flow in one process, until a signal."""

from datetime import timedelta
from typing import TYPE_CHECKING

from bench.job import Job
from bench.programs.flow_process import run_flow
from bench.programs.processor import clicks

from contracts.records import USER_CLICK, UserClick
from streamtable import Avro, Stream, String
from streamtable.flow import Flow

if TYPE_CHECKING:
    from collections.abc import Callable

WITHIN = timedelta(minutes=5)
GROUP_LENGTH = len("user-123")
"""The length of the foreign key of clicks in the left topic: a prefix of their user."""


def right_id(_: UserClick, right: UserClick) -> str:
    """Return the result of joining two clicks, the same in all joins."""
    return right["id"]


def by_time(name: str, left: str, right: str) -> Flow:
    """Write a record for each two clicks of a user within five minutes."""
    flow = Flow(name)
    pairs = flow.stream(clicks(left)).join(
        "pairs", flow.stream(clicks(right)), right_id, within=WITHIN, grace=WITHIN
    )
    pairs.to(_out(name))
    return flow


def by_key(name: str, left: str, right: str) -> Flow:
    """Write a record for each change of the last clicks of a user in both topics."""
    flow = Flow(name)
    one, other = (
        flow.stream(clicks(topic)).to_table(side, value=Avro(USER_CLICK))
        for side, topic in (("left", left), ("right", right))
    )
    one.join("both", other, right_id).to_stream().to(_out(name))
    return flow


def by_foreign_key(name: str, left: str, right: str) -> Flow:
    """Write a record for each change of a user's last click and of the one that it names."""
    flow = Flow(name)
    one = flow.stream(clicks(left)).to_table("left", value=Avro(USER_CLICK))
    other = flow.stream(clicks(right), group="right").to_table("right", value=Avro(USER_CLICK))
    joined = one.join("named", other, right_id, on=lambda click: click["user_id"][:GROUP_LENGTH])
    joined.to_stream().to(_out(name))
    return flow


JOINS: "dict[str, Callable[[str, str, str], Flow]]" = {
    "stream_join": by_time,
    "table_join": by_key,
    "foreign_key_join": by_foreign_key,
}


def flow_of_job(job: Job) -> Flow:
    """Return the join of a job."""
    return JOINS[job.handler](job.group, job.topic, job.second)


def _out(name: str) -> Stream[str, str]:
    return Stream(f"{name}-out", String(), String())


if __name__ == "__main__":
    run_flow(flow_of_job, lambda job: (job.topic, job.second))
