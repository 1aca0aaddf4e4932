"""Appends clicks to PostgreSQL with Quix Streams' sink.

Runs in a venv of its own.
"""

import json
import os
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fastavro import parse_schema, schemaless_reader
from quixstreams import Application  # type: ignore[import-not-found] # it is not in our environment
from quixstreams.models import Deserializer, TopicConfig  # type: ignore[import-not-found] # the same
from quixstreams.sinks.community.postgresql import PostgreSQLSink  # type: ignore[import-not-found] # the same

HEAD = 10  # bytes before the Avro body: C3 01 and the schema's fingerprint
SCHEMA = parse_schema(json.loads(Path(os.environ["BENCH_SCHEMA"]).read_text()))


class Clicks(Deserializer):  # type: ignore[misc] # the same
    """Reads clicks like the library's own Avro deserializer, after the ten-byte header."""

    def __call__(self, value: bytes, ctx: Any) -> Any:
        return schemaless_reader(BytesIO(value[HEAD:]), SCHEMA, None)


def main() -> None:
    app = Application(
        os.environ["BENCH_BROKER"],
        consumer_group=os.environ["BENCH_GROUP"],
        auto_offset_reset="earliest",
        commit_interval=int(os.environ["BENCH_COMMIT_MS"]) / 1000,
        state_dir=os.environ["BENCH_STATE_DIR"],
        processing_guarantee="exactly-once",
        loglevel="WARNING",
    )
    config = TopicConfig(num_partitions=int(os.environ["BENCH_PARTITIONS"]), replication_factor=1)
    topic = app.topic(
        os.environ["BENCH_TOPIC"], key_deserializer="str", value_deserializer=Clicks(), config=config
    )
    database = urlsplit(os.environ["BENCH_STORE"])
    sink = PostgreSQLSink(
        host=database.hostname,
        port=database.port,
        dbname=database.path.strip("/"),
        user=database.username,
        password="",
        table_name=os.environ["BENCH_TABLE"],
        schema_auto_update=False,
        include_metadata=False,
    )
    app.dataframe(topic).sink(sink)
    app.run()


if __name__ == "__main__":
    main()
