"""Measures the time of a `get` of a view, from Python in the same process."""

import os
import sys
from pathlib import Path
from random import Random
from time import perf_counter_ns

from bench.figures import percentile
from bench.job import Job
from bench.programs.marks import mark, tell

from streamtable import App, Avro, Kafka, String, Table
from streamtable.observe import configure_logging


def main() -> None:
    configure_logging("json", "warning", sys.stderr)
    job = Job.from_environment(os.environ)
    users = [f"user-{number}" for number in Random(1).choices(range(job.keys), k=job.records)]
    table = Table(job.topic, String(), Avro("long"))
    nanoseconds: list[int] = []
    with App(Kafka(job.broker), Path(job.state_dir)).view(table) as view:
        view.wait_ready(60)
        assert sum(view.get_many(f"user-{number}" for number in range(job.keys)).values()) == job.keys
        mark("first")
        for user in users:
            began = perf_counter_ns()
            view.get(user)
            nanoseconds.append(perf_counter_ns() - began)
        mark("last")
    tell({"p50": percentile(nanoseconds, 50) / 1000, "p99": percentile(nanoseconds, 99) / 1000})


if __name__ == "__main__":
    main()
