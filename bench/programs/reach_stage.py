"""A stage of tweet reach, run like its service: with embedded rows, or with the store of the job."""

import os
import sys
import threading
import time
from pathlib import Path

from bench.job import Job
from bench.programs.marks import mark

from microbatch import BatchProcessor
from microbatch.store_settings import store_from
from streamtable import Kafka
from streamtable.observe import configure_logging
from tweet_reach.stages import authors_stage, urls_stage

_LOOK_SECONDS = 0.005


def main() -> None:
    job = Job.from_environment(os.environ)
    make = authors_stage if job.handler == "authors" else urls_stage
    group = make(job.group, job.commit_ms / 1000)
    processor = BatchProcessor(
        group,
        Kafka(job.broker),
        store=store_from(job.store, group.name) if job.store else None,
        state_dir=Path(job.state_dir),
        instance_id=job.instance,
    )

    def wait_ready() -> None:
        while not processor.ready:
            time.sleep(_LOOK_SECONDS)
        mark("ready")

    threading.Thread(target=wait_ready, daemon=True).start()
    processor.run()


if __name__ == "__main__":
    configure_logging("json", "warning", sys.stderr)
    main()
