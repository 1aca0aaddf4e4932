"""How long it takes from an event's emission until what a micro-batch sends for it can be read, in another process."""

import os
import threading
import time

from confluent_kafka import Consumer, TopicPartition
from tests.bench.clicks import UPDATE, click
from tests.bench.figures import percentile
from tests.bench.job import Job
from tests.bench.programs.marks import mark, tell
from tests.bench.programs.micro_batch import updates
from tests.bench.programs.processor import clicks

from contracts.records import UserClick, UserStatusUpdate
from streamtable import Emitter, Kafka

_QUIET_SECONDS = 30.0
_TICK_SECONDS = 0.01
_MOST = 10_000
_WARM_UP = "warm-up"


class Reader:
    """Reads what is committed of the output."""

    def __init__(self, job: Job) -> None:
        self._client = Consumer(
            {
                "bootstrap.servers": job.broker,
                "group.id": f"{job.group}-reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,  # it is answered as soon as there is something
                "fetch.queue.backoff.ms": 5,
            }
        )
        self._client.assign([TopicPartition(job.table, each, 0) for each in range(job.partitions)])

    def next_keys(self) -> list[str]:
        """The next ones; it waits a moment for some. Raises KafkaException."""
        until = time.monotonic() + _QUIET_SECONDS
        while time.monotonic() < until:
            # One at least as soon as it is there, then all that is: consume() waits until it has as many as it was asked.
            first = self._client.poll(0.1)
            if first is not None:
                found = [first, *self._client.consume(_MOST, 0)]
                return [(each.key() or b"").decode() for each in found if not each.error()]
        raise RuntimeError(f"for {_QUIET_SECONDS:g} s nothing has come")

    def close(self) -> None:
        self._client.close()


def main() -> None:
    job = Job.from_environment(os.environ)
    kafka = Kafka(job.broker)
    reader = Reader(job)
    emitted: dict[str, float] = {}
    milliseconds: list[float] = []
    with Emitter(clicks(job.topic), kafka) as ours, Emitter(updates(job.second), kafka) as others:
        ours.emit_now(_WARM_UP, click(_WARM_UP))
        others.emit_now(_WARM_UP, UPDATE)
        while _WARM_UP not in reader.next_keys():
            pass
        sender = threading.Thread(target=_send, args=(job, ours, others, emitted))
        sender.start()
        while len(milliseconds) < job.records:
            keys, now = reader.next_keys(), time.perf_counter()
            milliseconds += [(now - emitted[key]) * 1000 for key in keys if key != _WARM_UP]
        sender.join()
    reader.close()
    tell({"p50": percentile(milliseconds, 50), "p99": percentile(milliseconds, 99)})


def _send(
    job: Job, ours: Emitter[str, UserClick], others: Emitter[str, UserStatusUpdate], emitted: dict[str, float]
) -> None:
    """By turns a click and an update. Each has a key of its own, by which it is found again."""
    began, sent = time.monotonic(), 0
    mark("first")
    while sent < job.records:
        wanted = min(int((time.monotonic() - began) * job.rate), job.records)
        for number in range(sent, wanted):
            user = f"user-{number}"
            emitted[user] = time.perf_counter()
            if number % 2:
                others.emit(user, UPDATE)
            else:
                ours.emit(user, click(user))
        sent = wanted
        time.sleep(_TICK_SECONDS)
    mark("last")


if __name__ == "__main__":
    main()
