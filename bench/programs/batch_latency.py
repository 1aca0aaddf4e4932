"""Measures the time from an event's emission until the output of a micro-batch for it can be read, in another process."""

import os
import threading
import time

from bench.clicks import UPDATE, click, filler, put
from bench.figures import percentile
from bench.job import Job
from bench.programs.marks import mark, tell
from bench.programs.micro_batch import updates
from bench.programs.processor import clicks
from confluent_kafka import Consumer, TopicPartition

from contracts.records import USER_CLICK, USER_STATUS_UPDATE
from streamtable import Avro, Emitter, Kafka
from streamtable_supervisor.system import relaxed_gc

_QUIET_SECONDS = 30.0
_TICK_SECONDS = 0.05
_MOST = 10_000
_FIRST = "first"


class Reader:
    """Reads the committed output."""

    def __init__(self, job: Job) -> None:
        self._client = Consumer(
            {
                "bootstrap.servers": job.broker,
                "group.id": f"{job.group}-reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,  # the broker answers as soon as there is a record
                "fetch.queue.backoff.ms": 5,
            }
        )
        self._client.assign([TopicPartition(job.table, each, 0) for each in range(job.partitions)])

    def next_keys(self) -> list[str]:
        """Return the next keys; waits briefly for some. Raises KafkaException."""
        until = time.monotonic() + _QUIET_SECONDS
        while time.monotonic() < until:
            # First one record, then all that are fetched: consume() waits for the requested number.
            first = self._client.poll(0.1)
            if first is not None:
                found = [first, *self._client.consume(_MOST, 0)]
                return [(each.key() or b"").decode() for each in found if not each.error()]
        raise RuntimeError(f"no output has arrived for {_QUIET_SECONDS:g} s")

    def close(self) -> None:
        self._client.close()


def main() -> None:
    job = Job.from_environment(os.environ)
    reader = Reader(job)
    emitted: list[float] = []  # by number
    read, milliseconds = 0, []
    with relaxed_gc():
        _send_first(job)
        while _FIRST not in reader.next_keys():
            pass
        sender = threading.Thread(target=_send, args=(job, emitted))
        sender.start()
        while read < job.records:
            keys, now = reader.next_keys(), time.perf_counter()
            numbers = [int(key) for key in keys if key != _FIRST]
            milliseconds += [(now - emitted[number]) * 1000 for number in numbers if number >= job.warm_up]
            read += len(numbers)
        sender.join()
    reader.close()
    tell({"p50": percentile(milliseconds, 50), "p99": percentile(milliseconds, 99)})


def _send_first(job: Job) -> None:
    kafka = Kafka(job.broker)
    with Emitter(clicks(job.topic), kafka) as ours, Emitter(updates(job.second), kafka) as others:
        ours.emit_now(_FIRST, click(_FIRST))
        others.emit_now(_FIRST, UPDATE)


def _send(job: Job, emitted: list[float]) -> None:
    """Emit clicks and updates in turn. The key of each is its number, which identifies it later.

    It uses the bare client, which is cheaper than an emitter with a future per record and leaves the machine to the
    measured programs.
    """
    client = filler(job.broker, {"linger.ms": "5"})
    kinds = [
        (job.topic, Avro(USER_CLICK).encode(click(_FIRST))),
        (job.second, Avro(USER_STATUS_UPDATE).encode(UPDATE)),
    ]
    began = time.monotonic()
    mark("first")
    while len(emitted) < job.records:
        due = min(int((time.monotonic() - began) * job.rate), job.records)
        for number in range(len(emitted), due):
            topic, value = kinds[number % 2]
            emitted.append(time.perf_counter())
            put(client, topic, b"%d" % number, value)
        time.sleep(_TICK_SECONDS)
    mark("last")
    client.flush()


if __name__ == "__main__":
    main()
