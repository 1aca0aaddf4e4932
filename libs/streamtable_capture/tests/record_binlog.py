"""Writes `recorded/mariadb.jsonl`: what Debezium's MariaDB connector writes, with positions of a real binlog. Run by hand.

Neither the server nor the connector is fetched by anything here, as no test needs them. Start MariaDB with `--log-bin
--binlog-format=ROW --server-id=7` and a user `shop` with the password `shop` and all rights, copy the jars of
`io.debezium:debezium-connector-mariadb:3.4.0.Final` and of what it needs at run time to a folder, without connect-*, kafka-* and
slf4j-*, which Connect has, and run

python libs/streamtable_capture/tests/record_binlog.py FOLDER PORT MARIADB

where MARIADB is the command of its client.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from libs.streamtable_capture.tests.record import FOLDER, line_of

from localkafka.broker import Broker
from localkafka.connect import Connector, ConnectWorker
from localkafka.reading import read_to_end
from localkafka.waiting import wait_until

TABLES = (
    "create or replace table customers(id int primary key, name varchar(50) not null, bio text, active boolean not null default true)",
    "create or replace table done(id int primary key)",
    "insert into customers values (1, 'ann', 'likes tea', true), (2, 'bob', null, true)",
)
CHANGES = (
    "update customers set name = 'anna' where id = 1",
    "update customers set active = false",  # two rows of one event of the binlog
    "flush binary logs",
    "update customers set id = 7 where id = 1",
    "delete from customers where id = 2",
    "insert into done values (1)",
)


def main(plugin: Path, port: int, client: str) -> None:
    """Record the changes."""

    def execute(statement: str) -> None:
        command = [
            client,
            "--no-defaults",
            "-h127.0.0.1",
            f"-P{port}",
            "-ushop",
            "-pshop",
            "shop",
            "-e",
            statement,
        ]
        subprocess.run(command, check=True)

    for statement in TABLES:
        execute(statement)
    with (
        tempfile.TemporaryDirectory(prefix="streamtable-record-") as folder,
        Broker(Path(folder) / "kafka", brief=True) as broker,
    ):
        config = {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.hostname": "127.0.0.1",
            "database.port": port,
            "database.user": "shop",
            "database.password": "shop",
            "database.server.id": 99,
            "database.include.list": "shop",
            "database.ssl.mode": "disable",
            "topic.prefix": "mariadb",
            "schema.history.internal.kafka.bootstrap.servers": broker.bootstrap_servers,
            "schema.history.internal.kafka.topic": "history",
            "provide.transaction.metadata": "true",
        }
        connector = Connector("mariadb", config)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        with ConnectWorker(
            Path(folder) / "connect", broker.bootstrap_servers, [connector], plugins=[plugin], brief=True
        ):
            wait_until(lambda: "mariadb.shop.customers" in admin.list_topics().topics, 120, "the snapshot")
            time.sleep(5)
            for statement in CHANGES:
                execute(statement)
            wait_until(lambda: "mariadb.shop.done" in admin.list_topics().topics, 60, "the changes")
            time.sleep(2)
        found = admin.list_topics().topics
        topics = [name for name in found if name.startswith("mariadb.")]
        places = [TopicPartition(name, each, 0) for name in topics for each in found[name].partitions]
        messages = read_to_end(broker.bootstrap_servers, places)
        messages.sort(key=lambda message: message.timestamp()[1])
        lines = list(map(line_of, messages))
        (FOLDER / "mariadb.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(len(lines))  # noqa: T201 - a script run by hand


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
