"""Emits clicks at a steady rate with the library's emitter."""

import os
import time
from random import Random

from bench.clicks import click
from bench.job import Job
from bench.programs.marks import mark
from bench.programs.processor import clicks

from streamtable import Emitter, Kafka

_TICK_SECONDS = 0.01


def main() -> None:
    job = Job.from_environment(os.environ)
    random = Random(1)
    with Emitter(clicks(job.topic), Kafka(job.broker)) as emitter:
        began, sent = time.monotonic(), 0
        mark("first")
        while sent < job.records:
            due = min(int((time.monotonic() - began) * job.rate), job.records)
            for _ in range(sent, due):
                user = f"user-{random.randrange(job.keys)}"
                emitter.emit(user, click(user))
            sent = due
            time.sleep(_TICK_SECONDS)
    mark("last")


if __name__ == "__main__":
    main()
