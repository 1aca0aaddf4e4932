"""Queries 5 and 8 of Nexmark with Flink SQL, started by PyFlink: exactly once, one slot. Runs in a venv of its own.

The events are read without the head of their Avro: Flink's format knows none. The argument is the folder of the jars.
"""

import os
import signal
import sys
import time
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found] # it is not in our environment

GROUP, PREFIX = os.environ["BENCH_GROUP"], os.environ["BENCH_TOPIC"]
KAFKA = f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{os.environ['BENCH_BROKER']}'"
TABLES = {
    "persons": "id BIGINT, name STRING, email STRING, credit_card STRING, city STRING, state STRING, at_ms BIGINT, extra STRING",
    "auctions": "id BIGINT, item STRING, description STRING, initial_bid BIGINT, reserve BIGINT, at_ms BIGINT, "
    "expires BIGINT, seller BIGINT, category BIGINT, extra STRING",
    "bids": "auction BIGINT, bidder BIGINT, price BIGINT, at_ms BIGINT, extra STRING",
}
"""The columns in the order of the Avro fields."""
COUNTED = """
    SELECT auction, COUNT(*) AS bids, window_start, window_end
    FROM TABLE(HOP(TABLE bids, DESCRIPTOR(event_time), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
"""
QUERIES = {
    "5": (
        "ends BIGINT, auction BIGINT, bids BIGINT",
        f"""
        SELECT 1000 * UNIX_TIMESTAMP(CAST(c.window_end AS STRING)), c.auction, c.bids
        FROM ({COUNTED}) AS c
        JOIN (SELECT MAX(bids) AS bids, window_start, window_end FROM ({COUNTED}) GROUP BY window_start, window_end) AS m
        ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.bids = m.bids
        """,
    ),
    "8": (
        "id BIGINT, name STRING, reserve BIGINT",
        """
        SELECT p.id, p.name, a.reserve
        FROM (SELECT * FROM TABLE(TUMBLE(TABLE persons, DESCRIPTOR(event_time), INTERVAL '10' SECOND))) AS p
        JOIN (SELECT * FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(event_time), INTERVAL '10' SECOND))) AS a
        ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end
        """,
    ),
}


def source(name: str, columns: str) -> str:
    strict = ", ".join(f"{column} NOT NULL" for column in columns.split(", "))
    return f"""
        CREATE TABLE {name} ({strict}, event_time AS TO_TIMESTAMP_LTZ(at_ms, 3), WATERMARK FOR event_time AS event_time)
        WITH ({KAFKA}, 'topic' = '{PREFIX}-{name}', 'properties.group.id' = '{GROUP}',
            'scan.startup.mode' = 'earliest-offset', 'format' = 'avro')
    """


def sink(columns: str) -> str:
    return f"""
        CREATE TABLE results ({columns})
        WITH ({KAFKA}, 'topic' = '{GROUP}-out', 'format' = 'json', 'sink.delivery-guarantee' = 'exactly-once',
            'sink.transactional-id-prefix' = '{GROUP}', 'properties.transaction.timeout.ms' = '600000')
    """


def main() -> None:
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    jars = ";".join(path.as_uri() for path in sorted(Path(sys.argv[1]).glob("*.jar")))
    for name, value in {
        "pipeline.jars": jars,
        "parallelism.default": "1",
        "table.local-time-zone": "UTC",
        "execution.checkpointing.interval": f"{os.environ['BENCH_COMMIT_MS']} ms",
        "execution.checkpointing.dir": Path(os.environ["BENCH_STATE_DIR"]).as_uri(),
    }.items():
        env.get_config().set(name, value)
    for name, columns in TABLES.items():
        env.execute_sql(source(name, columns))
    columns, query = QUERIES[os.environ["BENCH_HANDLER"]]
    env.execute_sql(sink(columns))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    job = env.execute_sql(f"INSERT INTO results {query}").get_job_client()
    while str(job.get_job_status().result()) != "JobStatus.RUNNING":
        time.sleep(0.01)
    os.write(1, f"first {time.time():.6f}\n".encode())
    signal.sigwait({signal.SIGTERM})
    job.cancel().result()


if __name__ == "__main__":
    main()
