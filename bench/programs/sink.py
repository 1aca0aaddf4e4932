"""Appends clicks to PostgreSQL with a sink."""

import os
import sys

from bench.job import Job
from bench.programs.processor import clicks

from streamtable import App, Kafka
from streamtable.observe import configure_logging
from streamtable_sinks import Sink
from streamtable_sinks.postgres import Postgres


def main() -> None:
    configure_logging("json", "warning", sys.stderr)
    job = Job.from_environment(os.environ)
    out = Sink(job.group, clicks(job.topic), Postgres(job.store, job.table), max_wait=job.commit_ms / 1000)
    App(Kafka(job.broker), job.state_dir).run(out, instance_id=job.instance)


if __name__ == "__main__":
    main()
