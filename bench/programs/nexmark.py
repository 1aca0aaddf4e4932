"""A query of Nexmark with the library: all groups of its flow in one process, until a signal."""

import time

from bench.job import Job
from bench.nexmark.generator import Generator
from bench.nexmark.model import Topics
from bench.nexmark.queries import flow_of
from bench.programs.flow_process import run_flow

from streamtable.flow import Flow


def flow_of_job(job: Job) -> Flow:
    """Return the query of a job, over the topics with its prefix."""
    return flow_of(
        int(job.handler),
        job.group,
        Topics(job.topic),
        clock=lambda: time.time_ns() // 1_000_000,
        longest_auction_ms=Generator(0, job.rate).longest_auction_ms,
    )


def inputs_of_job(job: Job) -> list[str]:
    """Return the names of the topics of all events."""
    topics = Topics(job.topic)
    return [each.name for each in (topics.persons, topics.auctions, topics.bids)]


if __name__ == "__main__":
    run_flow(flow_of_job, inputs_of_job)
