"""Measures the time from a click's emission until its count is in a view, with a processor in another process."""

import os
import threading
import time
from pathlib import Path

from bench.clicks import click
from bench.figures import percentile
from bench.job import Job
from bench.programs.marks import tell
from bench.programs.processor import by_count, clicks

from streamtable import App, Emitter, Kafka

_QUIET_SECONDS = 20.0


def main() -> None:
    job = Job.from_environment(os.environ)
    kafka = Kafka(job.broker)
    emitted: dict[str, float] = {}
    milliseconds: list[float] = []
    view = App(kafka, Path(job.state_dir)).view(by_count(job.group, job.topic).table)
    with view, Emitter(clicks(job.topic), kafka) as emitter, view.watch(capacity=1_000_000) as watch:
        view.wait_ready(_QUIET_SECONDS)
        emitter.emit_now("warm-up", click("warm-up"))
        while (change := watch.next(_QUIET_SECONDS)) is None or change.key != "warm-up":
            assert change is not None, "the processor does not count"
        sender = threading.Thread(target=_send, args=(job, emitter, emitted))
        sender.start()
        while len(milliseconds) < job.records:
            change = watch.next(_QUIET_SECONDS)
            assert change is not None, f"only {len(milliseconds)} of {job.records} clicks have arrived"
            milliseconds.append((time.perf_counter() - emitted[change.key]) * 1000)
        sender.join()
    tell({"p50": percentile(milliseconds, 50), "p99": percentile(milliseconds, 99)})


def _send(job: Job, emitter: Emitter[str, object], emitted: dict[str, float]) -> None:
    """Emit clicks, each with a unique key that identifies it."""
    began = time.perf_counter()
    for number in range(job.records):
        due = began + number / job.rate
        if (wait := due - time.perf_counter()) > 0:
            time.sleep(wait)
        user = f"user-{number}"
        emitted[user] = time.perf_counter()
        emitter.emit(user, click(user))


if __name__ == "__main__":
    main()
