"""Measures the time until a view shows a writer's own write, with a processor in another process."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.clicks import click
from bench.figures import percentile
from bench.job import Job
from bench.programs.marks import tell
from bench.programs.processor import by_count, clicks

from contracts.records import UserClick
from streamtable import App, Emitter, Kafka, View

_QUIET_SECONDS = 20.0
_WRITERS = 400  # concurrent writers: enough for 500 per second if each takes 0.8 seconds
_WARM_UP_SHARE = 0.2


class Writers:
    """Writers that each write a click of a new user, wait for it, and read the count.

    Attributes:
        milliseconds: The latency of each write, by the writer's number.
    """

    def __init__(self, emitter: Emitter[str, UserClick], view: View[str, int]) -> None:
        self.milliseconds: dict[int, float] = {}
        self._emitter = emitter
        self._view = view

    def write(self, number: int) -> None:
        """Write a click and measure from `emit` to a `get` that shows it."""
        user = f"user-{number}"
        began = time.perf_counter()
        ack = self._emitter.emit(user, click(user)).result(_QUIET_SECONDS)
        self._view.wait_for(ack, _QUIET_SECONDS)
        assert self._view.get(user) == 1, "the view does not show the awaited write"
        self.milliseconds[number] = (time.perf_counter() - began) * 1000

    def all(self, records: int, rate: int) -> None:
        """Run the writers at a steady rate. Raises the error of any of them."""
        with ThreadPoolExecutor(_WRITERS) as threads:
            began = time.perf_counter()
            written = []
            for number in range(records):
                if (wait := began + number / rate - time.perf_counter()) > 0:
                    time.sleep(wait)
                written.append(threads.submit(self.write, number))
            for each in written:
                each.result()


def main() -> None:
    job = Job.from_environment(os.environ)
    kafka = Kafka(job.broker)
    table = by_count(job.group, job.topic).table
    with (
        App(kafka, Path(job.state_dir)).view(table) as view,
        Emitter(clicks(job.topic), kafka) as emitter,
    ):
        view.wait_ready(_QUIET_SECONDS)
        first = emitter.emit_now("warm-up", click("warm-up"))
        view.wait_for(first, _QUIET_SECONDS)
        writers = Writers(emitter, view)
        writers.all(job.records, job.rate)
    measured = [
        took for number, took in writers.milliseconds.items() if number >= _WARM_UP_SHARE * job.records
    ]
    tell({"p50": percentile(measured, 50), "p99": percentile(measured, 99)})


if __name__ == "__main__":
    main()
