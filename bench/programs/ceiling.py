"""The ceiling: the Python client reads batches, and they are discarded."""

import os

from bench.job import Job
from bench.programs.client import BATCH, WAIT_SECONDS, consumer
from bench.programs.marks import mark


def main() -> None:
    job = Job.from_environment(os.environ)
    client = consumer(job)
    client.subscribe([job.topic])
    seen = 0
    while seen < job.records:
        messages = client.consume(BATCH, WAIT_SECONDS)
        if messages and not seen:
            mark("first")
        seen += len(messages)
    mark("last")
    # An error would have been counted as a record.
    read = sum(max(place.offset, 0) for place in client.position(client.assignment()))
    assert read == job.records, f"read {read} records, not {job.records}"
    client.close()


if __name__ == "__main__":
    main()
