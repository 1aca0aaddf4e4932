"""Writes `recorded/*.jsonl`: what Debezium's PostgreSQL connector writes in each JSON form. Run by hand:

python libs/streamtable_capture/tests/record.py
"""

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from libs.streamtable_capture.tests.shop_database import (
    BIO,
    connect_to,
    connector,
    create_shop,
    postgres_folder,
)

from localkafka.broker import Broker
from localkafka.connect import ConnectWorker
from localkafka.reading import read_to_end
from localkafka.waiting import Deadline
from localstores.postgres import LOGICAL, PostgresServer

FOLDER = Path(__file__).with_name("recorded")
JSON = "org.apache.kafka.connect.json.JsonConverter"
SCHEMAS = {
    f"{side}.converter{end}": value
    for side in ("key", "value")
    for end, value in (("", JSON), (".schemas.enable", "true"))
}
UNWRAP = {"transforms": "u", "transforms.u.type": "io.debezium.transforms.ExtractNewRecordState"}
FORMS = {
    "plain": {"provide.transaction.metadata": "true"},
    "schemas": SCHEMAS,
    "flat": {
        **UNWRAP,
        "transforms.u.delete.tombstone.handling.mode": "rewrite",
        "transforms.u.add.fields": "op,lsn,source.ts_ms,source.table,source.schema",
    },
    "flat-schemas": {
        **UNWRAP,
        **SCHEMAS,
        "transforms.u.delete.tombstone.handling.mode": "rewrite-with-tombstone",
        "transforms.u.add.fields": "op,lsn,source.ts_ms,source.table,source.schema",
    },
    "flat-tombstones": UNWRAP,
    "truncates": {"skipped.operations": "none", "table.include.list": "public.lines"},
}
CHANGES = (
    "update customers set name = 'anna' where id = 1",
    "insert into lines values (1, 1, 5)",
    "update customers set id = 7 where id = 1",
    "delete from customers where id = 2",
    r"""insert into typed values (1, 2, 1.5, 2.25, 12345.67, -1234.5678, '\x0001ff', '6b29fc40-ca47-1067-b31d-00dd010662da',
     '{"a":1}', '{"b": [1,2]}', '2024-02-29', '01:02:03.004', '01:02:03.000004', '2024-02-29 01:02:03.004',
     '1969-12-31 23:59:59.999999', '2024-02-29 01:02:03.000004+02', '2 days 3 hours', B'1010101011', 'ok', array[1, 2],
     point(1, 2))""",
    "insert into typed(id) values (2)",
    r"""insert into codes values (E'\u00e9"/<a>\\ \u0001\t\u007f\u2028 \U0001F600', 'x')""",
    "truncate lines",
)


def main() -> None:
    """Record all forms."""
    with (
        tempfile.TemporaryDirectory(prefix="streamtable-record-") as folder,
        postgres_folder() as data,
        Broker(Path(folder) / "kafka", brief=True) as broker,
        PostgresServer(data / "postgres", options=LOGICAL) as server,
    ):
        create_shop(server)
        database = connect_to(server)
        database.execute("insert into customers values (1, 'ann', %s), (2, 'bob', null)", [BIO])
        connectors = [connector(server, name, **settings) for name, settings in FORMS.items()]
        with ConnectWorker(Path(folder) / "connect", broker.bootstrap_servers, connectors, brief=True):
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            deadline = Deadline(60)
            while sum(name.endswith(".customers") for name in admin.list_topics().topics) < len(FORMS) - 1:
                assert not deadline.passed()
                time.sleep(0.2)
            time.sleep(1)
            for change in CHANGES:
                database.execute(change)
            while sum(name.endswith(".codes") for name in admin.list_topics().topics) < len(FORMS) - 1:
                assert not deadline.passed(), sorted(admin.list_topics().topics)
                time.sleep(0.2)
            time.sleep(3)
            found = admin.list_topics().topics
            for form in FORMS:
                topics = [name for name in found if name.startswith(f"{form}.")]
                places = [TopicPartition(name, each, 0) for name in topics for each in found[name].partitions]
                messages = read_to_end(broker.bootstrap_servers, places)
                messages.sort(
                    key=lambda message: message.timestamp()[1]
                )  # stable: as they are in each partition
                lines = list(map(line_of, messages))
                (FOLDER / f"{form}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
                print(form, len(lines))  # noqa: T201 - a script run by hand
        database.close()


def line_of(message: Any) -> str:
    """Return topic without prefix, partition, key, value, timestamp and the headers about keys, as JSON."""
    headers = {
        name: value.decode() for name, value in message.headers() or () if name.endswith(("oldkey", "newkey"))
    }
    texts = [None if data is None else data.decode() for data in (message.key(), message.value())]
    return json.dumps(
        [message.topic().partition(".")[2], message.partition(), *texts, message.timestamp()[1], headers]
    )


if __name__ == "__main__":
    main()
