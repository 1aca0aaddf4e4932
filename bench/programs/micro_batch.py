"""A micro-batch that joins the statuses and the clicks of users in Redis."""

import os
import sys

from bench.job import Job
from bench.programs.processor import clicks
from bench.programs.watched import Watched

from contracts.records import USER_STATUS, USER_STATUS_UPDATE, UserStatus, UserStatusUpdate
from microbatch import Batch, BatchProcessor, MicroBatch, Rows, Send
from microbatch.stores.redis import RedisDriver
from streamtable import Avro, Kafka, Stream, String
from streamtable.observe import configure_logging

BATCH_RECORDS = 10_000
ROWS: Rows[UserStatus] = Rows("users", value=Avro(USER_STATUS))


def updates(topic: str) -> Stream[str, UserStatusUpdate]:
    return Stream(topic, key=String(), value=Avro(USER_STATUS_UPDATE))


def joining(job: Job) -> MicroBatch:
    """Keeps for each user the last status and the number of clicks; sends each changed row, if the job has a `table`."""
    said, clicked = updates(job.second), clicks(job.topic)
    output = Stream(job.table, String(), Avro(USER_STATUS)) if job.table else None

    def join(batch: Batch, send: Send) -> None:
        rows = batch.rows(ROWS)
        users = {record.key for record in batch.records}
        found = rows.get_many(users)
        for user in users.difference(found):
            found[user] = UserStatus(status="", at=0, id="", clicks=0)
        for update in batch.of(said):
            row = found[update.key]
            row["status"], row["at"], row["id"] = (
                update.value["status"],
                update.value["at"],
                update.value["id"],
            )
        for click in batch.of(clicked):
            found[click.key]["clicks"] += 1
        rows.put_many(found)
        if output is not None:
            for user, row in found.items():
                send(output, user, row)

    return MicroBatch(
        job.group,
        inputs=[clicked, said],
        process=join,
        outputs=[] if output is None else [output],
        rows=[ROWS],
        max_records=BATCH_RECORDS,
        max_wait=job.commit_ms / 1000,
    )


def main() -> None:
    job = Job.from_environment(os.environ)

    def last() -> None:
        if job.until == "last":
            processor.stop()

    processor = BatchProcessor(
        joining(job),
        Watched(Kafka(job.broker), (job.topic, job.second), job.records, last),
        store=RedisDriver(job.store, tenant=job.group),
        instance_id=job.instance,
    )
    processor.run()


if __name__ == "__main__":
    configure_logging("json", "warning", sys.stderr)
    main()
