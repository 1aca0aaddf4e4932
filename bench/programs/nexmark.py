"""A query of Nexmark with the library: all groups of its flow in one process, until a signal stops it."""

import os
import sys
import time
from pathlib import Path

from bench.job import Job
from bench.nexmark.generator import Generator
from bench.nexmark.model import Topics
from bench.nexmark.queries import flow_of
from bench.programs.watched import Watched

from streamtable import App, Guarantee, Kafka
from streamtable.flow import Flow
from streamtable.observe import configure_logging


def flow_of_job(job: Job) -> Flow:
    """Return the query that a job names, over the topics whose names begin as it says."""
    return flow_of(
        int(job.handler),
        job.group,
        Topics(job.topic),
        clock=lambda: time.time_ns() // 1_000_000,
        longest_auction_ms=Generator(0, job.rate).longest_auction_ms,
    )


def main(job: Job) -> None:
    """Run it."""
    topics = Topics(job.topic)
    inputs = [each.name for each in (topics.persons, topics.auctions, topics.bids)]
    kafka = Watched(Kafka(job.broker), inputs, job.records, lambda: None)
    App(kafka, Path(job.state_dir)).run(
        flow_of_job(job),
        instance_id=job.instance,
        guarantee=Guarantee(job.guarantee),
        commit_interval=job.commit_ms / 1000,
    )


if __name__ == "__main__":
    configure_logging("json", "warning", sys.stderr)
    main(Job.from_environment(os.environ))
