"""A benchmark process that runs all groups of a flow until a signal."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.job import Job
from bench.programs.watched import Watched

from streamtable import App, Guarantee, Kafka
from streamtable.flow import Flow
from streamtable.observe import configure_logging


def run_flow(flow_of: Callable[[Job], Flow], inputs_of: Callable[[Job], Sequence[str]]) -> None:
    """Run the flow of the job in the environment.

    Args:
        flow_of: Returns the flow.
        inputs_of: Returns the names of the topics whose records are counted.
    """
    configure_logging("json", "warning", sys.stderr)
    job = Job.from_environment(os.environ)
    kafka = Watched(Kafka(job.broker), inputs_of(job), job.records, lambda: None)
    App(kafka, Path(job.state_dir)).run(
        flow_of(job),
        instance_id=job.instance,
        guarantee=Guarantee(job.guarantee),
        commit_interval=job.commit_ms / 1000,
    )
