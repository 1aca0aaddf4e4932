"""The hand-written join of two topics in Redis: a GET and a SET per record, at least once, with a commit every second.

A crash counts up to a second's clicks twice, as Redis is not part of the commit. Also omitted: poison records, waiting
for an unreachable Redis or broker, metrics.
"""

import os
import time
from io import BytesIO
from typing import Any

import fastavro
import orjson
from bench.job import Job
from bench.programs.client import BATCH, WAIT_SECONDS, consumer
from bench.programs.marks import mark
from confluent_kafka import KafkaException, Message
from redis import Redis

from contracts.records import USER_CLICK, USER_STATUS_UPDATE

_HEAD_BYTES = 10  # marker and fingerprint


class Joiner:
    """Keeps for each user the last status and the number of clicks."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._redis = Redis.from_url(job.store)
        self._click = fastavro.parse_schema(orjson.loads(USER_CLICK.schema))
        self._update = fastavro.parse_schema(orjson.loads(USER_STATUS_UPDATE.schema))

    def run(self) -> None:
        """Process the job's records."""
        client = consumer(self._job)
        client.subscribe([self._job.topic, self._job.second])
        seen, committed, due = 0, 0, time.monotonic() + self._job.commit_ms / 1000
        while seen < self._job.records:
            messages = client.consume(BATCH, WAIT_SECONDS)
            if messages and not seen:
                mark("first")
            for message in messages:
                self._handle(message)
                client.store_offsets(message)
            seen += len(messages)
            if seen >= self._job.records or time.monotonic() >= due:
                if seen > committed:
                    client.commit(asynchronous=False)
                    committed = seen
                due = time.monotonic() + self._job.commit_ms / 1000
        mark("last")
        client.close()
        self._redis.close()

    def _handle(self, message: Message) -> None:
        if error := message.error():
            raise KafkaException(error)
        value, key = message.value(), message.key()
        assert value is not None
        assert key is not None
        user = self._job.group.encode() + b":" + bytes(key)
        stored: Any = self._redis.get(user)
        row: dict[str, Any] = (
            orjson.loads(stored) if stored is not None else {"status": "", "at": 0, "id": "", "clicks": 0}
        )
        if message.topic() == self._job.topic:
            fastavro.schemaless_reader(BytesIO(value[_HEAD_BYTES:]), self._click, None)
            row["clicks"] += 1  # nothing else of a click is used, but it must be recognised as one
        else:
            said: Any = fastavro.schemaless_reader(BytesIO(value[_HEAD_BYTES:]), self._update, None)
            row |= {name: said[name] for name in ("status", "at", "id")}
        self._redis.set(user, orjson.dumps(row))


if __name__ == "__main__":
    Joiner(Job.from_environment(os.environ)).run()
