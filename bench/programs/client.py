"""The common Kafka consumer of the programs that do not use the library."""

from bench.job import Job
from confluent_kafka import Consumer

BATCH = 10_000
WAIT_SECONDS = 0.1


def settings(job: Job) -> dict[str, str | int | float | bool]:
    """The settings of a consumer that reads the topic from its beginning and commits only when asked to."""
    return {
        "bootstrap.servers": job.broker,
        "group.id": job.group,
        "group.protocol": "consumer",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        # By default, a partition whose queue was full is paused for a second, which starves a fast reader.
        "fetch.queue.backoff.ms": 5,
    }


def consumer(job: Job) -> Consumer:
    """A consumer with these settings."""
    return Consumer(settings(job))
